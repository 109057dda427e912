"""Jobs that tests run: some shards kill their process, raise, or come out otherwise than they should."""

from __future__ import annotations

import errno
import os
import signal
import time
from pathlib import Path
from typing import Any


class Cubes:
    """Shard i is the digits of i^3, computed in some milliseconds.

    kills    shards that kill their process; `deadly` after how many lives they stop, per shard a file in `log`
    raises   shards that raise an error, `lives` times
    stops    shards that stop their process (SIGSTOP), `lives` times; spins: those that compute for hours
    full     shards that find a disk full, `lives` times
    log      a folder in which every execution leaves a file, so that they can be counted
    local    what is no part of the identity, but should be
    """

    def __init__(self, count: int, milliseconds: float = 0, salt: int = 0, log: str = "", **faults: Any) -> None:
        self.count, self.milliseconds, self.log, self.faults = count, milliseconds, log, faults
        self.identity = {"power": 3, "salt": salt, "version": faults.get("version", 1)}
        if faults.get("version") == "of the process":
            self.identity["version"] = os.getpid()
        if faults.get("no_job"):
            raise ValueError("there is no such job")

    def work(self, i: int) -> bytes:
        time.sleep(self.milliseconds / 1000)
        lives = self._lived(i)
        if i in self.faults.get("kills", ()) and lives < self.faults.get("lives", 1 << 30):
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)  # the signal may come to another thread first
        if i in self.faults.get("exits", ()):
            os._exit(7)
        if i in self.faults.get("stops", ()) and lives < self.faults.get("lives", 1 << 30):
            os.kill(os.getpid(), signal.SIGSTOP)
        if i in self.faults.get("spins", ()):
            sum(range(10**12))  # holds the interpreter: no thread of this process can do anything
        if i in self.faults.get("full", ()) and lives < self.faults.get("lives", 1 << 30):
            raise OSError(errno.ENOSPC, "No space left on device")
        if i in self.faults.get("raises", ()) and lives < self.faults.get("lives", 1 << 30):
            raise ValueError(f"shard {i} has no cube")
        return f"{i**3}\n".encode()

    def _lived(self, i: int) -> int:
        """How often this shard was begun before."""
        if not self.log:
            return 0
        before = len(list(Path(self.log).glob(f"{i}.*")))
        (Path(self.log) / f"{i}.{os.getpid()}.{time.monotonic_ns()}").touch()
        return before
