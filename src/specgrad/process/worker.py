"""The process that runs other people's code: reads (program, arrays), answers with arrays or with the error's text.

Run as a script, with numpy alone: `python worker.py BYTES PARENT TIED`. An abort here is an answer to the process that
started it; when that process ends, however it ends, so does this one.
A frame is an 8-byte length and an npz archive: a header in JSON, and arrays by number, whatever a model calls them.
A program is Python text that defines run(*arrays, **arrays) -> list of arrays.
"""

from __future__ import annotations

import io
import json
import os
import signal
import struct
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np

try:
    import resource
except ImportError:  # Windows; process.CANNOT_LIMIT says so
    resource = None  # type: ignore[assignment]

LIMITS_MEMORY = resource is not None
MOST_BYTES = 1 << 36  # of a frame: what a broken one claims
CHUNK = 1 << 24
DIES_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux
Frame = tuple[dict[str, Any], list[Any]]


def encode(header: dict[str, Any], arrays: Sequence[Any]) -> bytes:
    """One npz archive behind its length."""
    buffer = io.BytesIO()
    head = np.frombuffer(json.dumps(header).encode(), np.uint8)
    np.savez(buffer, head, *arrays, allow_pickle=False)
    data = buffer.getvalue()
    return struct.pack("<Q", len(data)) + data


def read_frame(stream: BinaryIO) -> Frame | None:
    """The next archive; None at the end of the stream, and for whatever is not a whole frame."""
    head = stream.read(8)
    size = struct.unpack("<Q", head)[0] if len(head) == 8 else MOST_BYTES + 1
    if size > MOST_BYTES:
        return None
    data = bytearray()
    while len(data) < size and (chunk := stream.read(min(CHUNK, size - len(data)))):
        data += chunk
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            first, *arrays = (archive[f"arr_{i}"] for i in range(len(archive.files)))
        return json.loads(first.tobytes()), arrays
    except Exception:  # truncated, or not ours: zipfile, numpy and json each have their own words for it
        return None


def answer(header: dict[str, Any], arrays: Sequence[Any]) -> bytes:
    """The frame of the results, or of the error in one line. The arrays that have names come last."""
    space: dict[str, Any] = {"__name__": "program"}
    first = len(arrays) - len(header["names"])
    try:
        exec(compile(header["program"], "<program>", "exec"), space)
        results = space["run"](*arrays[:first], **dict(zip(header["names"], arrays[first:], strict=True)))
        return encode({}, [np.asarray(r) for r in results])
    except BaseException as error:
        return encode({"error": f"{type(error).__name__}: {' '.join(str(error).split())}"[:400]}, [])


def end_with(parent: int, tied: bool) -> None:
    """Linux ends this process with the thread that started it, if `tied`; a thread looks after the parent anywhere."""
    if tied and sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(DIES_WITH_PARENT, signal.SIGKILL)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    limit, parent, tied = map(int, sys.argv[1:4])
    end_with(parent, bool(tied))
    if LIMITS_MEMORY:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    # The protocol owns the real stdout; whatever a runtime prints goes to stderr, which nobody reads.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while (frame := read_frame(sys.stdin.buffer)) is not None:
        answers.write(answer(*frame))
        answers.flush()


if __name__ == "__main__":
    main()
