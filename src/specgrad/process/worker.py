"""The process that runs other people's code: reads (program, arrays), answers with arrays or with the error's text.

Run as a script, with numpy alone: `python worker.py BYTES PARENT TIED`. When the process that started it ends, however
it ends, so does this one.
A frame is an 8-byte length and arrays as np.save writes them: a header in JSON, then the others. To every request
there are three, so that the reader knows where this process was when it died, or hung:

    {"now": "calling"}     the program runs from here on: an abort is the program's
    {"now": "returned"}    it does not any more
    {}, or {"error": ...}  the answer

The first two are made before any program runs: one that leaves no memory must not be in their way. A process that a
program forks has no part in this, neither of the requests nor of the answers.
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
from functools import partial
from typing import Any, BinaryIO

import numpy as np

try:
    import resource
except ImportError:  # Windows; process.CANNOT_LIMIT says so
    resource = None  # type: ignore[assignment]

LIMITS_MEMORY = resource is not None
MAX_FRAME_BYTES = 1 << 36  # a longer length is that of a broken frame
CHUNK_BYTES = 1 << 24
PR_SET_PDEATHSIG = 1  # an option of prctl, of Linux
Frame = tuple[dict[str, Any], list[Any]]


def encode(header: dict[str, Any], arrays: Sequence[Any]) -> memoryview:
    """Return one frame: an 8-byte length, then the header (JSON) and the arrays as np.save writes them."""
    buffer = io.BytesIO(bytes(8))
    buffer.seek(8)
    for array in (np.frombuffer(json.dumps(header).encode(), np.uint8), *arrays):
        np.save(buffer, array, allow_pickle=False)
    data = buffer.getbuffer()
    data[:8] = struct.pack("<Q", len(data) - 8)
    return data


def read_frame(stream: BinaryIO) -> Frame | None:
    """Return the next frame (header, arrays), or None at the end of the stream; ValueError if it is incomplete."""
    head = stream.read(8)
    if not head:
        return None
    size = struct.unpack("<Q", head)[0] if len(head) == 8 else MAX_FRAME_BYTES + 1
    if size > MAX_FRAME_BYTES:
        raise ValueError("not a whole frame: its length is none")
    data = bytearray()
    while len(data) < size and (chunk := stream.read(min(CHUNK_BYTES, size - len(data)))):
        data += chunk
    buffer, arrays = io.BytesIO(data), []
    try:
        while buffer.tell() < size:
            arrays.append(np.load(buffer, allow_pickle=False))
        return json.loads(arrays[0].tobytes()), arrays[1:]
    except Exception as error:  # truncated, or not ours: numpy and json each have their own words for it
        raise ValueError(f"not a whole frame: {type(error).__name__}: {error}") from error


def call(header: dict[str, Any], arrays: Sequence[Any]) -> Frame:
    """Run the program text in `header` on arrays and return (header, arrays) of its result, or its error in one line.

    A result that is no array of numbers is a TypeError. The last arrays are passed by the names in `header`.
    """
    space: dict[str, Any] = {"__name__": "program"}
    first = len(arrays) - len(header["names"])
    try:
        exec(compile(header["program"], "<program>", "exec"), space)
        returned = space["run"](*arrays[:first], **dict(zip(header["names"], arrays[first:], strict=True)))
        results = [np.asarray(r) for r in returned]
        if any(a.dtype.hasobject for a in results):
            raise TypeError("a result is no array of numbers")
        return {}, results
    except BaseException as error:
        return {"error": error_line(error)}, []


def error_line(error: BaseException) -> str:
    """Return an error as one line of at most 400 characters, even if its own text raises."""
    try:
        text = " ".join(str(error).split())
    except BaseException as worse:
        text = f"its text raises {type(worse).__name__}"
    return f"{type(error).__name__}: {text}"[:400]


def end_with_parent(parent: int, tied: bool) -> None:
    """End this process with its parent: a thread polls the parent; if `tied`, Linux also kills it with that thread."""
    if tied and sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    """Serve requests from stdin until it ends, in this process with its memory limit.

    Answer each with three frames: "calling", "returned", and the answer.
    """
    limit, parent, tied = map(int, sys.argv[1:4])
    end_with_parent(parent, bool(tied))
    if LIMITS_MEMORY:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    # The protocol owns the real stdin and stdout: a runtime reads nothing, and what it prints goes to stderr, of which
    # the end is kept.
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    if hasattr(os, "register_at_fork"):
        for line in (requests.fileno(), answers.fileno()):
            os.register_at_fork(after_in_child=partial(os.close, line))

    def send(frame: memoryview) -> None:
        answers.write(frame)
        answers.flush()

    calling, returned = encode({"now": "calling"}, ()), encode({"now": "returned"}, ())
    while (request := read_frame(requests)) is not None:
        send(calling)
        answer = call(*request)
        send(returned)
        send(encode(*answer))
        del request, answer


if __name__ == "__main__":
    main()
