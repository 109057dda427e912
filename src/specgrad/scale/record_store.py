"""Records in a local folder or an object store: named bytes that are created once and never change.

What turns out to be wrong can be set aside, under another name.

A record becomes visible whole or not at all, and only if there is none of its name yet (create-if-absent). Nothing else
is asked of a place: no lock, no queue, no database. A process that is killed, runs twice, or runs beside others can
waste work, and can neither change a record nor double it.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from ..bounded_files import read_bytes
from ..errors import ParameterError, UnsupportedError, need

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*")
URL = re.compile(r"[a-z][a-z0-9+]*://")
PROBE = "probe"
PATIENCE: dict[str, Any] = {"retry_config": {"max_retries": 3, "retry_timeout": timedelta(seconds=10)}}
"""Of a request to an object store; the runner of shards waits longer, and says so."""


class Records:
    """A folder or object store of named bytes, each created once.

    A name with characters that some store does not allow is a ParameterError.

    where   a local folder, an address (s3://bucket/folder, gs://, az://, file:///, memory:///), or a store of obstore

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     records = Records(folder)
    ...     records.create("results/7", b"first"), records.create("results/7", b"second"), records.get("results/7")
    ...     records.names("results"), records.get("results/8")
    (True, False, b'first')
    ({'7'}, None)
    """

    def __init__(self, where: Any) -> None:
        self._place: _Folder | _Objects
        self.where: Any
        if isinstance(where, Records):
            self.where, self._place = where.where, where._place
        elif isinstance(where, Path) or (isinstance(where, str) and not URL.match(where)):
            self.where = os.path.abspath(where)
            self._place = _Folder(Path(self.where))
        else:
            need("obstore", "records in an object store need")
            self.where, self._place = where, _Objects(where)

    @property
    def address(self) -> str:
        """Address by which another process opens the same records; UnsupportedError for a store in memory."""
        if isinstance(self.where, str) and not self.where.startswith("memory:"):
            return self.where
        text = f"{self.where} is known to this process alone: give a folder or an address, or run with executor='loop'"
        raise UnsupportedError("records", text)

    def create(self, name: str, data: bytes) -> bool:
        """Create the record `name` with the bytes `data` and return True; return False if there is one already, which
        stays as it is.
        """
        return self._place.create(_checked_name(name), data)

    def get(self, name: str) -> bytes | None:
        """Return the bytes of the record `name`, or None if there is none."""
        return self._place.get(_checked_name(name))

    def has(self, name: str) -> bool:
        """Return whether there is a record of this name."""
        return self._place.has(_checked_name(name))

    def set_aside(self, name: str) -> None:
        """Move the record `name`, if there is one, to a name of its own in the folder aside/."""
        data = self.get(name)
        if data is not None:
            self.create(f"aside/{name}-{secrets.token_hex(4)}", data)
            self._place.remove(name)

    def names(self, folder: str) -> set[str]:
        """Return the names of the finished records in a folder."""
        return {name for name in self._place.names(_checked_name(folder)) if NAME.fullmatch(name)}

    def times(self, folder: str) -> dict[str, float]:
        """Return when each record in a folder was created, in seconds since 1970, by the clock of the store."""
        return {name: at for name, at in self._place.times(_checked_name(folder)).items() if NAME.fullmatch(name)}

    def check(self) -> None:
        """Raise UnsupportedError if the store overwrites records: some object stores ignore the condition.

        It is tried on a record named `probe`, which stays in the store.
        """
        self.create(PROBE, b"first")
        if self.create(PROBE, b"second") or self.get(PROBE) != b"first":
            text = f"{self.where} overwrites what is to be created only if absent: records there could change"
            raise UnsupportedError("records", text)


def _checked_name(name: str) -> str:
    """Return a record's name; ParameterError if it has characters that some store does not allow."""
    if not NAME.fullmatch(name):
        raise ParameterError("records", f"names are made of letters, digits, '.', '_', '-' and '/'; got {name!r}")
    return name


class _Folder:
    """Records in a local folder, `root`.

    A file is written under a hidden name, then hard-linked to its own, which fails if that exists.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def create(self, name: str, data: bytes) -> bool:
        """Create the file `name` with the bytes `data`, whole or not at all, and return True; False if there is one
        already.

        UnsupportedError where the file system has no hard links.
        """
        path = self.root / name
        part = path.with_name(f".{path.name[:100]}.{secrets.token_hex(8)}.tmp")
        try:
            file = part.open("xb")
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = part.open("xb")
        try:
            with file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.link(part, path)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS):
                raise
            text = f"{path.parent} is on a file system without hard links: choose another folder, or an object store"
            raise UnsupportedError("records", text) from error
        finally:
            part.unlink(missing_ok=True)
        return True

    def get(self, name: str) -> bytes | None:
        """Return the bytes of the file `name`, or None if there is none."""
        try:
            return bytes(read_bytes(self.root / name))
        except FileNotFoundError:
            return None

    def has(self, name: str) -> bool:
        """Return whether there is a file of this name."""
        return (self.root / name).is_file()

    def remove(self, name: str) -> None:
        """Remove the file `name`, if it is there."""
        (self.root / name).unlink(missing_ok=True)

    def names(self, folder: str) -> set[str]:
        """Return the names of all files in a folder, unfinished ones too."""
        try:
            return set(os.listdir(self.root / folder))
        except FileNotFoundError:
            return set()

    def times(self, folder: str) -> dict[str, float]:
        """Return when each finished file in a folder was last written, in seconds since 1970."""
        try:
            with os.scandir(self.root / folder) as entries:
                return {e.name: e.stat().st_mtime for e in entries if not e.name.startswith(".")}
        except FileNotFoundError:
            return {}


class _Objects:
    """Records in an object store `where`, an address or a store of obstore, created by a conditional put
    (If-None-Match) or obstore's own stores.

    A request that is sent twice because its answer was lost says False the second time: then the record is there.
    """

    def __init__(self, where: Any) -> None:
        import obstore
        from obstore.store import LocalStore, from_url

        self.api = obstore
        self.absent = (FileNotFoundError, obstore.exceptions.NotFoundError)
        self.store = where
        if isinstance(where, str):
            self.store = (
                LocalStore.from_url(where, mkdir=True) if where.startswith("file:") else from_url(where, **PATIENCE)
            )

    def create(self, name: str, data: bytes) -> bool:
        """Create the object `name` with the bytes `data` and return True; False if there is one already."""
        try:
            self.api.put(self.store, name, data, mode="create", use_multipart=False)
        except self.api.exceptions.AlreadyExistsError:
            return False
        return True

    def get(self, name: str) -> bytes | None:
        """Return the bytes of the object `name`, or None if there is none."""
        try:
            return bytes(self.api.get(self.store, name).bytes())
        except self.absent:
            return None

    def has(self, name: str) -> bool:
        """Return whether there is an object of this name."""
        try:
            self.api.head(self.store, name)
        except self.absent:
            return False
        return True

    def remove(self, name: str) -> None:
        """Remove the object `name`, if it is there."""
        with suppress(*self.absent):
            self.api.delete(self.store, name)

    def names(self, folder: str) -> set[str]:
        """Return the names of all objects below a folder."""
        pages = self.api.list(self.store, prefix=folder)
        return {item["path"].removeprefix(f"{folder}/") for page in pages for item in page}

    def times(self, folder: str) -> dict[str, float]:
        """Return when each object below a folder was last written, in seconds since 1970."""
        pages = self.api.list(self.store, prefix=folder)
        return {i["path"].removeprefix(f"{folder}/"): i["last_modified"].timestamp() for page in pages for i in page}
