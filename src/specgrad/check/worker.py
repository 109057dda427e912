"""The process that runs other people's code: reads (program, arrays), answers with arrays or with the error's text.

Run as a script, with numpy alone: `python worker.py BYTES`. An abort here is an answer to the process that started it.
A frame is an 8-byte length and an npz archive; a program is Python text that defines run(**arrays) -> list of arrays.
"""

from __future__ import annotations

import io
import os
import resource
import struct
import sys
from typing import Any, BinaryIO

import numpy as np


def write_frame(stream: BinaryIO, arrays: dict[str, Any]) -> None:
    """One npz archive behind its length."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    data = buffer.getvalue()
    stream.write(struct.pack("<Q", len(data)) + data)
    stream.flush()


def read_frame(stream: BinaryIO) -> dict[str, Any] | None:
    """The next archive, or None at the end of the stream."""
    head = stream.read(8)
    if len(head) < 8:
        return None
    data = stream.read(struct.unpack("<Q", head)[0])
    with np.load(io.BytesIO(data), allow_pickle=False) as archive:
        return dict(archive)


def answer(program: str, arrays: dict[str, Any]) -> dict[str, Any]:
    """The results by position, or the error in one line."""
    space: dict[str, Any] = {"__name__": "program"}
    try:
        exec(compile(program, "<program>", "exec"), space)
        results = space["run"](**arrays)
        return {f"result{i}": np.asarray(r) for i, r in enumerate(results)}
    except BaseException as error:
        return {"error": np.array(f"{type(error).__name__}: {' '.join(str(error).split())}"[:400])}


def main() -> None:
    limit = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    # The protocol owns the real stdout; whatever a runtime prints goes to stderr, which nobody reads.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while (frame := read_frame(sys.stdin.buffer)) is not None:
        program = str(frame.pop("program:source"))
        write_frame(answers, answer(program, frame))


if __name__ == "__main__":
    main()
