"""Atomic file writes: a file is written entirely or not at all, never over one that is not ours, and by one process at
a time.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # a system without it
    fcntl = None  # type: ignore[assignment]

Ours = Callable[[bytes], bool]  # whether a file with these bytes was written by us
MAX_BYTES_READ = 1 << 28


def write_whole(path: str | Path, data: str | bytes) -> None:
    """Write `data` to a file atomically: to a temporary file beside it, then renamed.

    A process that is killed leaves the old file, and a temporary one called .NAME.specgrad-XXXXXXXX.tmp, which is never
    read.
    """
    target = Path(os.path.realpath(path))
    raw = data.encode("utf-8") if isinstance(data, str) else data
    if target.exists() and not target.is_file():  # a pipe, /dev/null
        target.write_bytes(raw)
        return
    beside = target.with_name(f".{target.name[:100]}.specgrad-{secrets.token_hex(4)}.tmp")
    try:
        with beside.open("xb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, target)
    finally:
        beside.unlink(missing_ok=True)


def write_pair(path: str | Path, text: bytes, beside: Path, data: bytes) -> None:
    """Write two files that belong together, `text` to path and `data` to `beside`; a stop at any time leaves the old
    pair or the new one.

    No system exchanges two files at once, so the text alone says which pair is there. The data wait under a name that
    `partner` finds by the text, the text is exchanged, the data take their place. OSError, before anything is written,
    where `beside` cannot be a file.
    """
    refuse_misplaced(beside)
    waiting = _staged_path(text, beside)
    replaced = _staged_path(Path(path).read_bytes(), beside) if Path(path).is_file() else waiting
    write_whole(waiting, data)
    try:
        write_whole(path, text)
        os.replace(waiting, os.path.realpath(beside))
    except BaseException:
        if not _holds(path, text):
            waiting.unlink(missing_ok=True)
        raise
    replaced.unlink(missing_ok=True)  # of a pair that was stopped before its data took their place


def partner(text: bytes, beside: Path) -> Path:
    """Return the path at which `write_pair` left the data that belong to the bytes `text`: `beside`, or its temporary
    name.
    """
    waiting = _staged_path(text, beside)
    return waiting if waiting.is_file() else beside


def _staged_path(text: bytes, beside: Path) -> Path:
    """Return the temporary path, next to `beside`, of the data that belong to the bytes `text`."""
    target = Path(os.path.realpath(beside))
    return target.with_name(f".{target.name[:100]}.specgrad-{hashlib.sha256(text).hexdigest()[:16]}.new")


def _holds(path: str | Path, text: bytes) -> bool:
    """Return whether the file has exactly the bytes `text`; False if it cannot be read."""
    with suppress(OSError):
        return Path(path).read_bytes() == text
    return False


@contextmanager
def claimed(path: Path) -> Iterator[None]:
    """Hold a file or folder that is there for one writer meanwhile; BlockingIOError, at once, while another holds it.

    The system forgets a claim when its process ends, however it ends. Where it, or the file system, knows none, nothing
    is held.
    """
    place = os.open(path, os.O_RDONLY)
    try:
        if fcntl is not None:
            try:
                fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise BlockingIOError(error.errno, "is being written by another process", str(path)) from None
            except OSError:
                pass  # a file system without locks
        yield
    finally:
        os.close(place)


def refuse_foreign(path: Path, is_ours: Ours) -> None:
    """Raise FileExistsError if there is a file at `path` that `is_ours`, a test of its bytes, does not know."""
    if path.is_file():
        with path.open("rb") as file:
            if not is_ours(file.read(MAX_BYTES_READ)):
                text = "exists and was not written by specgrad; --force overwrites it"
                raise FileExistsError(errno.EEXIST, text, str(path))


def refuse_misplaced(path: Path, *, folder: bool = False) -> None:
    """Raise OSError if this path cannot be a file (or, with `folder`, a folder of files).

    Folders are made as needed. Permissions and disk space only show when writing.
    """
    place = path if folder else path.parent
    while folder and not place.exists() and place != place.parent:
        place = place.parent
    if not place.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "no such folder", str(place))
    if not folder and path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a folder, not a file", str(path))
