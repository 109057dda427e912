"""Which decisions of two trained networks can no correct runtime change?

python benchmarks/trained_decisions.py                        # all; writes benchmarks/trained_decisions.txt
python benchmarks/trained_decisions.py digits --samples 100   # one network, some of its test images; printed only
python benchmarks/trained_decisions.py --minutes 20           # stops there; a later run goes on

The networks (benchmarks/trained.py) are trained here: five convolutions on scikit-learn's digits, ResNet-20 on pictures
of 32x32. For each arithmetic the share of test images whose class is proven the same on every execution of the class,
fused unless said. Then images made to lie on a boundary: between two test images of different classes, as near to the
place where the decision turns as float32 has it. Those are asked of real runtimes and of orders chosen against each
other.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import gettempdir

import numpy as np
import torch

from specgrad.check.decisions import PreserveResult, preserve
from specgrad.rounding import Arithmetic
from trained import Task, digits, pictures

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
torch.set_num_threads(1)
PAGE = Path(__file__).with_suffix(".txt")
ARITHMETICS = {
    "float32": Arithmetic(),
    "float32, by node": Arithmetic(execution="node"),
    "TF32 operands": Arithmetic(operands="tf32"),
    "bfloat16 operands": Arithmetic(operands="bfloat16"),
    "float16, float32 sums": Arithmetic("float16", accumulate="float32"),
    "float16, float16 sums": Arithmetic("float16"),
}
# how many of the 500 test images are asked, arithmetic by arithmetic
TASKS: dict[str, tuple[Callable[[], Task], tuple[int, ...]]] = {
    "digits": (digits, (500, 200, 500, 100, 100, 20)),
    "pictures": (lambda: pictures(width=8, stride=2), (100, 10, 5, 0, 0, 0)),
}
BOUNDARY = {"digits": 20, "pictures": 5}


# --- on the boundary --------------------------------------------------------------------------------------------------


def between(task: Task, count: int) -> np.ndarray:
    """Images between two of different classes, next to where the class of the first is left."""
    module = task.module.double()
    classes = lambda x: int(module(torch.from_numpy(x[None].astype(np.float64))).argmax())
    found: list[np.ndarray] = []
    with torch.no_grad():
        for a, b in itertools.pairwise(range(len(task.x))):
            first, last = task.x[a], task.x[b]
            if classes(first) != classes(last) and len(found) < count:
                found.append(_turning(first, last, classes))
    task.module.float()
    return np.stack(found)


def _turning(first: np.ndarray, last: np.ndarray, classes: Callable[[np.ndarray], int]) -> np.ndarray:
    """The last image of the first class on the way to the other, in float32."""
    at = lambda t: (first + np.float32(t) * (last - first)).astype(np.float32)
    own, low, high = classes(first), 0.0, 1.0
    while (middle := np.float32((low + high) / 2)) not in (np.float32(low), np.float32(high)):
        low, high = (float(middle), high) if classes(at(middle)) == own else (low, float(middle))
    return at(low)


# --- one line ---------------------------------------------------------------------------------------------------------


def line(name: str, found: PreserveResult, seconds: float) -> str:
    counts, total = found.counts, len(found.samples)
    ratios = np.array([s.ratio for s in found.samples])
    share = f"{100 * counts['proven'] / total:5.1f} % of {total} proven, {counts['differs']} shown to differ"
    return f"  {name:28} {share}; margin/tolerance {np.median(ratios):8.3g}; {seconds / total:5.2f} s each"


def test_images(task: Task, samples: Sequence[int], until: float) -> Iterator[str]:
    for (name, arithmetic), count in zip(ARITHMETICS.items(), samples, strict=True):
        if not count:
            continue
        try:
            found, seconds = run(task, task.x[:count], name, arithmetic, until, runtimes=())
        except StoppedError:
            yield so_far(name, record_of(task, name, count), count)
            raise
        yield line(name, found, seconds)


def so_far(name: str, record: Path, count: int) -> str:
    rows = [json.loads(text) for text in record.read_text().splitlines()] if record.exists() else []
    verdicts = [row["verdict"] for row in rows if "verdict" in row]
    return f"  {name:28} {verdicts.count('proven')} of {len(verdicts)} proven so far, of {count} that are asked"


def on_the_boundary(task: Task, count: int, until: float) -> Iterator[str]:
    images = between(task, count)
    found, seconds = run(task, images, "boundary", Arithmetic(), until, runtimes=None)
    yield line("float32, on the boundary", found, seconds)
    for s in found.samples:
        by = " and ".join(f"{e['name']} ({e['decision']})" for e in s.executions)
        outside = f"; outside the class: {', '.join(s.outside)}" if s.outside else ""
        yield f"    margin {s.margin:.2g} of tolerance {s.tolerance:.2g}: {s.verdict}{': ' if by else ''}{by}{outside}"


def record_of(task: Task, name: str, count: int) -> Path:
    words = f"{task.name} {name} {count}".replace(" ", "-").replace(",", "")
    return Path(gettempdir()) / f"specgrad-decisions-{words}.jsonl"


class StoppedError(Exception):
    """The time is over; what is done is in the record."""


def run(
    task: Task, x: np.ndarray, name: str, arithmetic: Arithmetic, until: float, runtimes: tuple[str, ...] | None
) -> tuple[PreserveResult, float]:
    """All samples, going on from the record of an earlier run; the seconds of all of them."""

    def progress(said: str, done: int, total: int) -> None:
        if time.monotonic() > until:
            raise StoppedError

    record = record_of(task, name, len(x))
    found = preserve(task.module, x, arithmetic=arithmetic, runtimes=runtimes, checkpoint=record, progress=progress)
    return found, sum(s.seconds for s in found.samples)


def lines(names: list[str], most: int, until: float) -> Iterator[str]:
    for name in names:
        make, samples = TASKS[name]
        task = make()
        count = sum(p.numel() for p in task.module.parameters())
        yield f"{task.name}: {count:,} parameters, {100 * task.accuracy:.1f} % of {len(task.y)} test images right"
        yield from on_the_boundary(task, BOUNDARY[name], until)
        yield from test_images(task, [min(n, most) for n in samples], until)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", choices=[[], *TASKS], default=[])
    parser.add_argument("--samples", type=int, default=500, help="at most so many test images")
    parser.add_argument("--minutes", type=float, default=1e6)
    options = parser.parse_args()
    until = time.monotonic() + 60 * options.minutes
    said = [__doc__ or ""]
    try:
        for text in lines(options.networks or list(TASKS), options.samples, until):
            print(text, flush=True)
            said.append(text)
    except StoppedError:
        said.append("stopped here: the time was over; run again to go on")
        print(said[-1])
    if not options.networks:
        PAGE.write_text("\n".join(said) + "\n")


if __name__ == "__main__":
    main()
