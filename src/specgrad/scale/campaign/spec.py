"""A campaign's spec: a TOML file with its kind, its folder, and the keys of its kind."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...bounded_files import MAX_TEXT_BYTES, parse_toml, read_bytes
from ..record_store import URL
from .keys import CampaignError
from .kind import Kind
from .kinds import KINDS, job

RECIPE = "specgrad.scale.campaign.kinds:job"


@dataclass(frozen=True)
class Spec:
    """A parsed spec, from the file `path`: kind and options of a campaign, the folder or object store of its records,
    and `home`, where the files that it names are.
    """

    path: str
    kind: str
    folder: str
    options: dict[str, Any]
    home: str

    def job(self) -> Kind:
        """Return the campaign that the spec describes; CampaignError names the key that is wrong."""
        return job(**self.recipe())

    def recipe(self) -> dict[str, Any]:
        """Return the JSON data from which a worker builds the campaign."""
        return {"kind": self.kind, "options": self.options, "home": self.home}


def read_spec(path: str | Path) -> Spec:
    """Return the spec in a TOML file; files that it names are not read yet.

    FileError if it is no TOML, CampaignError if it is invalid.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "spec.toml"
    >>> _ = file.write_text('kind = "conformance"\\nfolder = "run"\\nruntime = "torch"')
    >>> spec = read_spec(file)
    >>> spec.kind, spec.options, Path(spec.folder).name
    ('conformance', {'runtime': 'torch'}, 'run')
    """
    file = Path(path)
    data = parse_toml(read_bytes(file, MAX_TEXT_BYTES), path)
    for key, words in (("kind", f"one of {', '.join(KINDS)}"), ("folder", "where the records lie")):
        if not isinstance(data.get(key), str) or not data[key]:
            raise CampaignError(f"{path} needs the key {key}, a text: {words}")
    kind, folder = data.pop("kind"), data.pop("folder")
    if kind not in KINDS:
        raise CampaignError(f"there is no kind {kind!r:.40}; kinds are {', '.join(KINDS)}")
    home = file.resolve().parent
    return Spec(str(path), kind, folder if URL.match(folder) else str(home / folder), data, str(home))
