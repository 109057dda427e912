"""Check the built site: every local link leads to a file and an anchor that exist, every page has a way in.

Links to the project's own files on the forge are held against this checkout; other addresses are listed, not asked.

python -m sphinx -q -W --keep-going docs out && python tools/check_site.py out
python tools/check_site.py out --external      # also list the addresses that lead elsewhere
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).parents[1]
FORGE = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Source"]
UNLINKED = {"search.html", "genindex.html", "py-modindex.html", "_modules/index.html"}  # nobody looks for them


class Page(HTMLParser):
    """What a page links to, what it shows, and the places in it that can be linked to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.shown: list[str] = []
        self.anchors: set[str] = set()
        self.twice: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value is not None}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag in ("img", "script", "link"):
            self.shown += [given[name] for name in ("src", "href") if name in given]
        if tag != "svg" and "id" in given:
            (self.twice if given["id"] in self.anchors else self.anchors).add(given["id"])


def is_local(address: str) -> bool:
    return not urlsplit(address).scheme and not address.startswith("//")


def is_missing(address: str) -> bool:
    """Whether an address names a file of ours on the forge that is not in this checkout."""
    inside = re.match(rf"{re.escape(FORGE)}/(?:blob|edit|tree)/main/([^#?]+)", address)
    return inside is not None and not (ROOT / unquote(inside[1])).exists()


def faults(site: Path) -> Iterator[str]:
    """A line per link that leads nowhere and per page that nothing leads to."""
    pages = {path: Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    ways: dict[Path, set[Path]] = {path: set() for path in pages}
    for path, page in pages.items():
        here = path.relative_to(site)
        for address in dict.fromkeys(filter(is_local, page.links + page.shown)):
            to, anchor = unquote(urlsplit(address).path), unquote(urlsplit(address).fragment)
            target = (path.parent / to).resolve() if to else path
            if not target.is_relative_to(site):
                yield f"{here}: {address} leads out of the site"
            elif not target.is_file():
                yield f"{here}: {address} is no file"
            elif target in pages:
                ways[path].add(target)
                if anchor and anchor not in pages[target].anchors:
                    yield f"{here}: {address} has no such anchor"
        for address in filter(is_missing, dict.fromkeys(page.links)):
            yield f"{here}: {address} is no file of the project"
    for path in sorted(pages.keys() - reached(site / "index.html", ways)):
        if str(path.relative_to(site)) not in UNLINKED:
            yield f"{path.relative_to(site)}: no page leads here"


def reached(start: Path, ways: dict[Path, set[Path]]) -> set[Path]:
    found, todo = {start}, [start]
    while todo:
        new = ways.get(todo.pop(), set()) - found
        found |= new
        todo += new
    return found


def elsewhere(site: Path) -> list[str]:
    """Addresses that lead out of the site."""
    pages = [Page(path.read_text()) for path in site.rglob("*.html")]
    return sorted({a.partition("#")[0] for page in pages for a in page.links if not is_local(a)})


def main(arguments: list[str]) -> int:
    site = Path(arguments[0]).resolve()
    found = list(faults(site))
    print(*found, sep="\n", end="\n" if found else "")
    if "--external" in arguments:
        print(*elsewhere(site), sep="\n")
    print(f"{len(list(site.rglob('*.html'))):,} pages, {len(found)} faults")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
