"""No false alarm: runtimes that implement the rules get only "exact" or "rounding" on finite data.

    python benchmarks/no_false_alarm.py | tee benchmarks/no_false_alarm.txt      # about half an hour on 2 cores
    python benchmarks/no_false_alarm.py --quick --runtime onnxruntime            # about half a minute

Part 1: layers of ResNet, ResNeXt, MobileNet, U-Net and a 3-D CNN at their sizes, six kinds of data each.
Part 2: generated questions about every operator, finite data, gradients included where the runtime has them.
A question about a rule that the runtime does not implement (FAULTS) is counted apart; anything else that rounding does
not explain is an alarm, is printed with its minimal case, and makes the exit code 1.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from specgrad.check.cases.generate import FINITE, SHAPES, draw, draw_case, pooling_window
from specgrad.check.cases.op_case import OpCase
from specgrad.check.cases.shrink import shrink
from specgrad.check.conform.broken_rule import rule
from specgrad.check.conform.conformance import GRADIENTS
from specgrad.check.runtimes import RUNTIMES, Runtime, runtime
from specgrad.check.verdicts.judge import Verdict
from specgrad.check.verdicts.run_case import RuntimeExaminer, with_gradient
from specgrad.process import Process

NAMES = ("torch", "jax", "onnxruntime", "openvino-f32")

# --- part 1: layers at their sizes ------------------------------------------------------------------------------

Layer = tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]]  # operator, x, w, attributes


def _layer(operator: str, x: tuple[int, ...], w: tuple[int, ...], padding: int = 0, **attributes: Any) -> Layer:
    rank = len(x) - 2
    plain: dict[str, Any] = {"stride": 1, "dilation": 1}
    plain |= {"output_padding": 0} if operator == "conv_transpose" else {}
    per_axis = {k: (attributes.pop(k, v),) * rank for k, v in plain.items()}
    return operator, x, w, {**per_axis, "padding": ((padding, padding),) * rank, "groups": 1, **attributes}


LAYERS: dict[str, Layer] = {
    "ResNet stem 7x7 s2": _layer("conv", (1, 3, 128, 128), (64, 3, 7, 7), 3, stride=2),
    "ResNet 3x3": _layer("conv", (1, 64, 56, 56), (64, 64, 3, 3), 1),
    "ResNet 3x3 s2": _layer("conv", (2, 64, 56, 56), (128, 64, 3, 3), 1, stride=2),
    "ResNet 1x1 s2": _layer("conv", (2, 64, 56, 56), (128, 64, 1, 1), stride=2),
    "ResNet 1x1": _layer("conv", (1, 256, 28, 28), (64, 256, 1, 1)),
    "ResNet 3x3, 4608 terms": _layer("conv", (2, 512, 7, 7), (64, 512, 3, 3), 1),
    "ResNeXt 3x3, 32 groups": _layer("conv", (1, 128, 28, 28), (128, 4, 3, 3), 1, groups=32),
    "MobileNet depthwise 3x3": _layer("conv", (1, 96, 56, 56), (96, 1, 3, 3), 1, groups=96),
    "MobileNet depthwise 3x3 s2": _layer("conv", (1, 144, 56, 56), (144, 1, 3, 3), 1, groups=144, stride=2),
    "MobileNet 1x1": _layer("conv", (1, 16, 56, 56), (96, 16, 1, 1)),
    "DeepLab 3x3, dilation 2": _layer("conv", (1, 64, 28, 28), (64, 64, 3, 3), 2, dilation=2),
    "DeepLab 3x3, dilation 4": _layer("conv", (1, 32, 33, 33), (32, 32, 3, 3), 4, dilation=4),
    "3-D CNN 3x3x3": _layer("conv", (1, 8, 16, 16, 16), (16, 8, 3, 3, 3), 1),
    "1-D CNN 15": _layer("conv", (1, 32, 1024), (32, 32, 15), 7),
    "U-Net up 2x2 s2": _layer("conv_transpose", (1, 64, 28, 28), (64, 32, 2, 2), stride=2),
    "GAN up 4x4 s2": _layer("conv_transpose", (1, 64, 28, 28), (64, 32, 4, 4), 1, stride=2),
    "up 3x3 s2, extra 1": _layer("conv_transpose", (1, 32, 28, 28), (32, 32, 3, 3), 1, stride=2, output_padding=1),
    "up depthwise 4x4 s2": _layer("conv_transpose", (1, 32, 28, 28), (32, 1, 4, 4), 1, stride=2, groups=32),
}


def layer_questions(names: list[str], seed: int) -> Iterator[tuple[str, OpCase]]:
    """Every layer with a bias, under every kind of finite data; weights stand in the file, as in a deployed model."""
    for name in names:
        operator, x, w, attributes = LAYERS[name]
        cout = w[1] * attributes["groups"] if operator == "conv_transpose" else w[0]
        for i, kind in enumerate(FINITE):
            rng = np.random.default_rng([seed, i, *name.encode()])
            arrays = {k: draw(rng, kind, k, shape) for k, shape in {"x": x, "w": w, "b": (cout,)}.items()}
            yield name, OpCase(operator, attributes, arrays, data=kind, spelling="constant weights")


# --- part 2: every operator -------------------------------------------------------------------------------------


def operator_questions(operator: str, count: int, seed: int, gradients: bool) -> Iterator[tuple[str, OpCase]]:
    for i in range(count):
        asked = draw_case(operator, FINITE[i % len(FINITE)], seed * 1_000_003 + i)
        yield operator, asked
        if gradients and operator in GRADIENTS:
            yield f"{operator}, gradient", with_gradient(asked, i)


# --- rules that a runtime does not implement --------------------------------------------------------------------


@dataclass(frozen=True)
class Fault:
    """A rule on finite data that a runtime breaks: for which questions, and what it does."""

    runtime: str
    operators: tuple[str, ...]
    applies: Callable[[OpCase], bool]
    text: str


def _same(q: OpCase) -> bool:
    return q.attributes.get("padding") in ("same_upper", "same_lower")


def _same_dilated(q: OpCase) -> bool:
    return _same(q) and max(q.attributes.get("dilation", (1,))) > 1


def _same_with_gaps(q: OpCase) -> bool:
    """A stride over the kernel: cells lie between the windows, and SAME needs no padding there."""
    return _same(q) and any(s > k for s, k in zip(q.attributes["stride"], q.attributes["kernel"], strict=True))


def _windows(q: OpCase) -> list[tuple[int, int]]:
    """Per axis, how many windows rounding down and rounding up give; under SAME as if without padding."""
    a, rank = q.attributes, len(q.attributes["kernel"])
    pads = a["padding"] if isinstance(a["padding"], tuple) else ((0, 0),) * rank
    axes = zip(q.arrays["x"].shape[-rank:], a["kernel"], a["stride"], a.get("dilation", (1,) * rank), pads, strict=True)
    rooms = [(n + lo + hi - e * (k - 1) - 1, s) for n, k, s, e, (lo, hi) in axes]
    return [(room // s + 1, -(-room // s) + 1) for room, s in rooms]


def _drops_a_window(q: OpCase) -> bool:
    """Under ceil, rounding up alone would give a last window that starts in the high padding."""
    many = [up > o for (_, up), o in zip(_windows(q), pooling_window(q).out, strict=True)]
    return bool(q.attributes.get("ceil")) and any(many)


def _sticks_out(q: OpCase) -> bool:
    """Under ceil, the last window reaches over the padded end."""
    return bool(q.attributes.get("ceil")) and not _same(q) and any(up > down for down, up in _windows(q))


def _one_strided_column(q: OpCase) -> bool:
    """A convolution with one output cell along the last axis, a stride over 1 there, and several cells elsewhere."""
    out = q.output_shape()[2:]
    return out[-1] == 1 and max(out) > 1 and q.attributes["stride"][-1] > 1


FAULTS = (
    Fault(
        "onnxruntime",
        ("max_pool", "max_pool_indices", "lp_pool"),
        _same_dilated,
        "SAME padding is derived from the undilated kernel: wrong shape (shape inference has it right)",
    ),
    Fault(
        "onnxruntime",
        ("max_pool_indices", "avg_pool", "lp_pool"),
        _same_with_gaps,
        "SAME with stride > kernel: padding becomes negative and the first cells are skipped",
    ),
    Fault(
        "openvino-f32",
        ("conv",),
        _one_strided_column,
        "one output column, stride > 1 along it: rows in between are wrong (3x3 on 3x3, stride (1, 2), pads (1, 0))",
    ),
    Fault(
        "openvino-f32",
        ("conv_transpose",),
        lambda q: q.spelling == "output_shape" and q.attributes["groups"] > 1,
        "with group > 1 and output_shape the derived padding is taken as 0",
    ),
    Fault(
        "openvino-f32",
        ("max_pool", "max_pool_indices", "avg_pool", "lp_pool"),
        _drops_a_window,
        "[W3]: under ceil a last window that starts in the padding is kept",
    ),
    Fault(
        "openvino-f32",
        ("avg_pool", "lp_pool"),
        _sticks_out,
        "[A1]: under ceil a last window over the padded end counts as a whole one",
    ),
    Fault(
        "openvino-f32",
        ("softplus",),
        lambda q: bool((q.arrays["x"] < -6).any()),
        "below -6 its error reaches 128 u (runtime_ulps.txt)",
    ),
    Fault(
        "openvino-f32",
        ("exp",),
        lambda q: bool((q.arrays["x"] > 88.376).any()),
        "infinite from 88.3765, where float32 ends at 88.7228",
    ),
)


def known_fault(name: str, asked: OpCase) -> Fault | None:
    found = (f for f in FAULTS if f.runtime == name and asked.operator in f.operators and f.applies(asked))
    return next(found, None)


# --- counting ---------------------------------------------------------------------------------------------------


@dataclass
class Row:
    """One line of the table."""

    kinds: Counter[str] = field(default_factory=Counter)
    outputs: int = 0
    ratio: float = 0.0

    def add(self, asked: OpCase, verdict: Verdict) -> None:
        self.kinds[verdict.kind] += 1
        if verdict.kind in ("exact", "rounding"):
            self.outputs += cells(asked)
            self.ratio = max(self.ratio, verdict.ratio)

    def __str__(self) -> str:
        k = self.kinds
        rest = sum(k.values()) - sum(k[n] for n in SHOWN)
        return f"{self.outputs:>11,}" + "".join(f"{k[n]:>9}" for n in SHOWN) + f"{rest:>9}{self.ratio:>9.3f}"


SHOWN = ("exact", "rounding", "cannot tell", "refuses", "not offered", "known")
COLUMNS = ("outputs", "exact", "rounding", "open", "refused", "no such", "known", "ALARMS", "ratio")
HEAD = f"{'':30}{COLUMNS[0]:>11}" + "".join(f"{c:>9}" for c in COLUMNS[1:])


def cells(asked: OpCase) -> int:
    """The number of results that were judged."""
    if asked.gradient is not None:
        return sum(a.size for a in asked.arrays.values())
    return int(np.prod(asked.output_shape())) * len(asked.answers())


class Tally:
    """The table of one runtime."""

    def __init__(self, found: Runtime, process: Process) -> None:
        self.found, self.examiner = found, RuntimeExaminer(found, process)
        self.rows: dict[str, Row] = {}
        self.known: Counter[Fault] = Counter()
        self.alarms: list[str] = []

    def ask(self, label: str, asked: OpCase) -> None:
        verdict = self.examiner.ask(asked)
        if verdict.kind in ("differs", "other arithmetic", "crashes", "times out"):
            verdict = self._explain(asked, verdict)
        self.rows.setdefault(label, Row()).add(asked, verdict)

    def _explain(self, asked: OpCase, verdict: Verdict) -> Verdict:
        fault = known_fault(self.found.name, asked)
        if fault is not None:
            self.known[fault] += 1
            return Verdict("known")  # type: ignore[arg-type]
        small = shrink(asked, lambda q: self.examiner.ask(q).same_sort(verdict)) if len(self.alarms) < 20 else asked
        again = self.examiner.ask(small)
        self.alarms.append(f"ALARM [{rule(small, again)}] {asked.data} data: {small}: {again}")
        print(self.alarms[-1], flush=True)
        return verdict

    def show(self, label: str) -> None:
        print(f"{label:30}{self.rows[label]}", flush=True)


def total(rows: list[Row]) -> Row:
    found = Row()
    for row in rows:
        found.kinds += row.kinds
        found.outputs, found.ratio = found.outputs + row.outputs, max(found.ratio, row.ratio)
    return found


def examine(name: str, layers: list[str], operators: list[str], count: int, seed: int) -> Tally:
    found, start = runtime(name), time.perf_counter()
    print(f"\n{name}: {', '.join(f'{k} {v}' for k, v in found.versions().items())}\n{HEAD}")
    with Process(seconds=120, environment=found.environment) as process:
        tally = Tally(found, process)
        groups = [layer_questions([n], seed) for n in layers]
        groups += [operator_questions(o, count, seed, found.gradients) for o in operators]
        for group in groups:
            before = set(tally.rows)
            for label, asked in group:
                tally.ask(label, asked)
            for label in tally.rows.keys() - before:
                tally.show(label)
    conv = [r for label, r in tally.rows.items() if label in LAYERS or label.startswith("conv")]
    print(f"{'convolutions together':30}{total(conv)}\n{'everything':30}{total(list(tally.rows.values()))}")
    for fault, number in tally.known.items():
        print(f"known: {number} questions, {', '.join(fault.operators)}: {fault.text}")
    print(f"alarms: {len(tally.alarms)}; {time.perf_counter() - start:.0f} s", flush=True)
    return tally


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--runtime", action="append", choices=[*RUNTIMES], help="may be given again; all four if absent"
    )
    parser.add_argument("--count", type=int, default=200, help="questions per operator")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="every sixth layer, 24 questions per operator")
    parser.add_argument("--operator", action="append", choices=[*SHAPES], help="may be given again; no layers then")
    given = parser.parse_args()
    count = 24 if given.quick else given.count
    layers = [] if given.operator else list(LAYERS)[:: 6 if given.quick else 1]
    print(
        f"python benchmarks/no_false_alarm.py, seed {given.seed}, {count} questions per operator; {platform.machine()}"
    )
    print("outputs: judged exact or rounding; then questions by verdict; ratio: the largest error over its allowance")
    tallies = [examine(name, layers, given.operator or [*SHAPES], count, given.seed) for name in given.runtime or NAMES]
    sys.exit(1 if any(t.alarms for t in tallies) else 0)


if __name__ == "__main__":
    main()
