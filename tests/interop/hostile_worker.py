"""Import files, one after the other, in a process of its own, and say what happened to each.

    python hostile_worker.py files PATH...          every path once
    python hostile_worker.py mutants FOLDER SEED COUNT   COUNT mutants of the models in FOLDER

Prints one JSON line per file (mutants: one at the end). CPU seconds are measured, which a busy machine does not
stretch; the peak memory is that of the whole process, so every single file stays below it.
"""

from __future__ import annotations

import json
import random
import resource
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from mutants import mutant
from specgrad import SpecgradError
from specgrad.interop import from_onnx

MEMORY = 2 * 2**30  # a stop for what the test then reports as too much


def attempt(source: Any) -> dict[str, Any]:
    """What became of one file: its verdict, its message, CPU seconds."""
    start = time.process_time()
    try:
        graph = from_onnx(source)
        found = {"verdict": "imported", "text": f"{len(graph)} nodes"}
    except SpecgradError as error:
        found = {"verdict": "refused", "text": str(error), "kind": type(error).__name__}
        if error.__cause__ is not None and not isinstance(error.__cause__, SpecgradError | OSError | DecodeError):
            found["cause"] = type(error.__cause__).__name__
    except BaseException as error:
        found = {"verdict": "crashed", "text": f"{type(error).__name__}: {error}"}
    return {**found, "seconds": time.process_time() - start, "peak_mb": peak_mb()}


def peak_mb() -> float:
    """Of this program alone; getrusage would count the process it was forked from."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def hunt(folder: str, seed: int, count: int) -> dict[str, Any]:
    """Mutants seed, seed+1, ...; each is made from its own number, so one that is reported can be made again."""
    models = [p.read_bytes() for p in sorted(Path(folder).glob("*.onnx"))]
    verdicts: Counter[str] = Counter()
    causes: Counter[str] = Counter()
    worst, bad = 0.0, []
    examples: dict[str, int] = {}
    for number in range(seed, seed + count):
        found = attempt(mutant(random.Random(number), models))
        verdicts[found["verdict"]] += 1
        causes[found.get("cause", "none")] += 1
        worst = max(worst, found["seconds"])
        text = found["text"]
        if "cause" in found:
            examples.setdefault(text, number)
        if found["verdict"] == "crashed" or found["seconds"] > 1 or "\n" in text or not 0 < len(text) < 700:
            bad.append({"number": number, **found})
    return {
        "verdicts": verdicts,
        "causes": causes,
        "worst": worst,
        "peak_mb": peak_mb(),
        "bad": bad[:10],
        "examples": examples,
    }


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    command, *rest = sys.argv[1:]
    if command == "mutants":
        print(json.dumps(hunt(rest[0], int(rest[1]), int(rest[2]))))
        return
    for path in rest:
        print(json.dumps({"file": Path(path).name, **attempt(path)}), flush=True)


if __name__ == "__main__":
    main()
