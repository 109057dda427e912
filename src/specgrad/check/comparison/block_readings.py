"""Compare files that do not say how many channels a block of com.microsoft.nchwc has: once with 16, once with 8.

The processor on which ONNX Runtime wrote such a file settles it. What is shown of one reading is said with its
condition; models differ where they do in every reading that the files allow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product

from specgrad.deadline import time_left, time_limit
from specgrad.errors import SpecgradError, TimeLimitError
from specgrad.interop.model import Model

from .result import DIFFERS, SAME, UNKNOWN, WITHIN_ROUNDING, Comparison

BLOCKS = (16, 8)  # most processors of today first
OPEN = "which its file does not say"


def compare_readings(a: Model, b: Model, compared: Callable[[Model, Model], Comparison]) -> Comparison:
    """Return what `compared` says of both models, with the condition on their blocks where a file leaves them open.

    A reading that is refused shows nothing; where all are, the last error is raised.
    """
    choices = [BLOCKS if model.leaves_blocks_open else (None,) for model in (a, b)]
    readings = list(product(*choices))
    if readings == [(None, None)]:
        return compared(a, b)
    done, refused = list[Comparison](), list[SpecgradError]()
    for k, blocks in enumerate(readings):
        left = time_left()
        read = [m if n is None else replace(m, block_channels=n) for m, n in zip((a, b), blocks, strict=True)]
        try:
            with time_limit(None if left == float("inf") else left / (len(readings) - k)):
                done.append(compared(*read))
        except TimeLimitError:
            raise
        except SpecgradError as error:
            refused.append(error)
            continue
        if done[-1].verdict in (SAME, WITHIN_ROUNDING):
            return replace(done[-1], method=f"{done[-1].method}, if {_condition(blocks)}")
    if not done:
        raise refused[-1]
    if not refused and all(each.verdict == DIFFERS for each in done):
        return replace(done[0], method=f"{done[0].method}, whether blocks have 16 channels or 8")
    said = done[0] if done[0].verdict != DIFFERS else done[-1]
    return replace(said, verdict=UNKNOWN, method=f"{said.method}, whether blocks have 16 channels or 8")


def _condition(blocks: tuple[int | None, ...]) -> str:
    """Return what a reading takes for granted, in words; `blocks` are the channels of both models' blocks.

    >>> _condition((None, 16))
    "the second model's blocks have 16 channels, which its file does not say"
    """
    names = ("the first model", "the second model")
    each = [f"{name}'s blocks have {n} channels, {OPEN}" for name, n in zip(names, blocks, strict=True) if n]
    return " and ".join(each)
