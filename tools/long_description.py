"""The README as the page of the package shows it: links and pictures by their full address.

A hook of hatchling (pyproject.toml): package indexes serve the text without the files beside it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|mailto:|#)([^)\s]+)\)")


def absolute(text: str, forge: str, version: str) -> str:
    """Each relative link as a page of the forge, each picture as its raw file, both as they were at this version."""

    def there(match: re.Match[str]) -> str:
        picture, words, path = match.groups()
        return f"{picture}[{words}]({forge}/{'raw' if picture else 'blob'}/v{version}/{path})"

    return LINK.sub(there, text)


class LongDescription(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        text = absolute(text, metadata["urls"]["Source"], metadata["version"])
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
