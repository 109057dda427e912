"""Files are written whole or not at all, and never over what somebody else wrote."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Callable
from pathlib import Path

Ours = Callable[[bytes], bool]  # whether a file with these bytes was written by us
MOST_READ = 1 << 28


def write_whole(path: str | Path, data: str | bytes) -> None:
    """Write beside the file and rename: whoever stops in between leaves what was there before."""
    target = Path(os.path.realpath(path))
    raw = data.encode("utf-8") if isinstance(data, str) else data
    if target.exists() and not target.is_file():  # a pipe, /dev/null
        target.write_bytes(raw)
        return
    beside = target.with_name(f".{target.name[:100]}.{secrets.token_hex(4)}.tmp")
    try:
        with beside.open("xb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, target)
    finally:
        beside.unlink(missing_ok=True)


def refuse_foreign(path: Path, is_ours: Ours) -> None:
    """FileExistsError if there is a file that we did not write."""
    if path.is_file():
        with path.open("rb") as file:
            if not is_ours(file.read(MOST_READ)):
                text = "exists and was not written by specgrad; --force overwrites it"
                raise FileExistsError(errno.EEXIST, text, str(path))


def refuse_misplaced(path: Path, *, folder: bool = False) -> None:
    """OSError if this cannot be a file, or a folder of files; folders are made as needed.

    Who may write, and whether the disk has room, only writing shows: then the verdict is already said.
    """
    place = path if folder else path.parent
    while folder and not place.exists() and place != place.parent:
        place = place.parent
    if not place.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "no such folder", str(place))
    if not folder and path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a folder, not a file", str(path))
