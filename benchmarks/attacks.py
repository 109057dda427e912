"""Attacks on verifiers (tests/attacks, docs/findings/attacks.md): what an execution computes, and who denies it.

    python benchmarks/attacks.py --seconds 10                 # prints the table, writes benchmarks/attacks.txt
    python benchmarks/attacks.py --export folder              # every network as ONNX, every claim as VNN-LIB 1.0
    PYTHONPATH=path/to/auto_LiRPA python benchmarks/attacks.py     # with a column of its backward bounds, in float32

Columns
  triggering execution   a correct float32 execution (TF32 in its row), run by tests/attacks/trees.py on one input
  class                  the class that it computes there -> the class that is claimed
  over the reals         linear bounds for exact arithmetic prove the claim ("holds"), or not ("open")
  auto_LiRPA             its CROWN bounds prove the claim, or not
  by node, fused         certify, for executions that store every layer's result, and for all that merge layers
  broken on              runtimes installed here that compute a wrong class at the input: ORT (ONNX Runtime, all its
                         optimisations, as by default), ORT plain (none), OpenVINO (as it comes: bfloat16 where the
                         processor has it), OpenVINO f32 (its hint for float32); a wrong class in bfloat16 breaks no
                         claim about float32
  certificate            whether the exact checker accepts a certificate of the claim (float32 alone)
  twin                   certify on the disarmed twin, for all executions that merge layers
"""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "attacks"))

import specgrad as sg  # noqa: E402
from attack import Attack  # noqa: E402
from export import export, onnx_bytes  # noqa: E402
from specgrad.bounds.search.certificates.find_slopes import certificate  # noqa: E402
from specgrad.proof.base.rationals import ReplayError  # noqa: E402
from specgrad.proof.files.certificate import check  # noqa: E402
from suite import BUILDERS, attack_named, holds_over_the_reals, verdict  # noqa: E402

HEAD = ("attack", "triggering execution", "class", "broken on", "over the reals", "auto_LiRPA")
HEAD += ("by node", "fused", "certificate", "twin")
START, END = "<!-- benchmarks/attacks.py writes from here -->", "<!-- to here -->"


def row(name: str, seconds: float) -> tuple[str, ...]:
    attack = attack_named(name)
    y, claimed = attack.trigger(attack.network, attack.x), claimed_class(attack)
    ours = [verdict(attack, seconds=seconds, execution=kind).verdict for kind in ("node", "fused")]
    twin = verdict(attack, seconds=seconds, disarmed=True).verdict
    real = "holds" if holds_over_the_reals(attack) else "open"
    computed = f"{int(np.argmax(y))} -> {claimed}"
    return (
        name,
        attack.trigger.name,
        computed,
        broken_on(attack),
        real,
        by_auto_lirpa(attack),
        *ours,
        certified(attack),
        twin,
    )


def claimed_class(attack: Attack) -> int:
    """All alternatives of a claim of one class are (label's output) - (another output) <= 0."""
    return int(np.argmax(attack.claim.cases[0].alternatives[0].rows[0]))


def certified(attack: Attack) -> str:
    if attack.arithmetic:
        return "not about it"
    claim = attack.least_claim()
    try:
        check(*certificate(attack.graph, claim), attack.graph, claim)
    except ReplayError:
        return "refused"
    return "VALID"


def by_auto_lirpa(attack: Attack) -> str:
    """CROWN bounds of auto_LiRPA, all in float32 as it comes; "-" where it cannot be imported."""
    try:
        from auto_LiRPA import BoundedModule, BoundedTensor, PerturbationLpNorm
    except ImportError:
        return "-"
    (case,) = attack.claim.cases
    rows = torch.from_numpy(np.stack([a.rows[0] for a in case.alternatives])).float()[None]
    low, high = (torch.from_numpy(end.reshape(attack.x.shape)).float() for end in case.outer())
    x = torch.from_numpy(attack.x)
    with torch.no_grad(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        module = BoundedModule(Module(attack), x, bound_opts={"conv_mode": "matrix"}, verbose=False)
        box = BoundedTensor(x, PerturbationLpNorm(norm=np.inf, x_L=low, x_U=high))
        bound, _ = module.compute_bounds(x=(box,), C=rows, method="backward", bound_upper=False)
    return "holds" if bool((bound > 0).all()) else "open"


class Module(torch.nn.Module):
    """An attack's network on PyTorch's own layers."""

    def __init__(self, attack: Attack) -> None:
        super().__init__()
        self.network = attack.network

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.network(TorchLayers(), x)


class TorchLayers:
    """The layers of tests/attacks/trees.py, each node by itself."""

    def conv(self, name: str, w: Any, b: Any, x: Any, padding: int = 0) -> Any:
        return torch.nn.functional.conv2d(x, t(w), None if b is None else t(b), padding=padding)

    def linear(self, name: str, w: Any, b: Any, x: Any) -> Any:
        return torch.nn.functional.linear(x, t(w), None if b is None else t(b))

    def conv_plus(self, name: str, w: Any, x: Any, residual: Any) -> Any:
        return self.conv(name, w, None, x) + residual

    def conv_norm(self, name: str, w: Any, x: Any, mean: Any, scale: Any) -> Any:
        per_channel = (t(v).reshape(1, -1, 1, 1) for v in (mean, scale))
        return (self.conv(name, w, None, x) - next(per_channel)) * next(per_channel)

    norm_in_steps = conv_norm

    def conv_conv(self, name: str, first: Any, second: Any, x: Any) -> Any:
        return self.conv(name, second, None, self.conv(name, first, None, x))

    def mul_add(self, x: Any, c: Any, d: Any) -> Any:
        return x * float(c) + float(d)

    def readers(self, count: int, make: Any) -> list[Any]:
        return [make(self)] * count

    def relu(self, x: Any) -> Any:
        return torch.relu(x)

    def max_pool(self, x: Any, size: int) -> Any:
        return torch.nn.functional.max_pool2d(x, size)

    def add(self, x: Any, y: Any) -> Any:
        return x + y

    def part(self, x: Any, *ranges: slice) -> Any:
        return x[ranges]

    def flatten(self, x: Any) -> Any:
        return x.flatten(1)

    def join(self, *xs: Any) -> Any:
        return torch.cat(xs, 1)


def t(array: Any) -> torch.Tensor:
    return torch.tensor(np.asarray(array))


# --- runtimes ---------------------------------------------------------------------------------------------------------


def broken_on(attack: Attack) -> str:
    """Which runtimes that are installed here compute outputs, at the attack's input, that break the claim."""
    runs = {"torch": on_torch, "jax": on_jax, "ORT": on_onnxruntime, "ORT plain": on_onnxruntime_plain}
    runs |= {"OpenVINO f32": on_openvino_f32, "OpenVINO": on_openvino}
    found = []
    for name, run in runs.items():
        try:
            found += [name] if attack.broken_by(np.ravel(run(attack))) else []
        except ImportError:
            continue
    return ", ".join(found) or "none"


def on_torch(attack: Attack) -> Any:
    with torch.no_grad():
        return Module(attack)(torch.from_numpy(attack.x)).numpy()


def on_jax(attack: Attack) -> Any:
    return np.asarray(sg.compile(attack.graph, "jax")(attack.x))


def on_onnxruntime(attack: Attack, level: str = "ORT_ENABLE_ALL") -> Any:
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    options.log_severity_level = 3
    session = ort.InferenceSession(onnx_bytes(attack), options, providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: attack.x})[0]


def on_onnxruntime_plain(attack: Attack) -> Any:
    return on_onnxruntime(attack, "ORT_DISABLE_ALL")


def on_openvino(attack: Attack, settings: Any = None) -> Any:
    import openvino as ov

    model = ov.Core().compile_model(ov.Core().read_model(onnx_bytes(attack)), "CPU", settings or {})
    return model(attack.x)[0]


def on_openvino_f32(attack: Attack) -> Any:
    return on_openvino(attack, {"INFERENCE_PRECISION_HINT": "f32"})


# --- the table --------------------------------------------------------------------------------------------------------


def table(rows: list[tuple[str, ...]]) -> str:
    widths = [max(len(r[k]) for r in rows) for k in range(len(rows[0]))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows)


def write_page(rows: list[tuple[str, ...]], summary: str) -> None:
    """The same table into docs/findings/attacks.md."""
    page = ROOT / "docs" / "findings" / "attacks.md"
    before, rest = page.read_text().split(START)
    lines = [f"| {' | '.join(r)} |" for r in rows]
    lines.insert(1, "|" + "---|" * len(HEAD))
    page.write_text("\n".join([before + START, "", *lines, "", summary, "", END]) + rest.split(END)[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10, help="for each verdict")
    parser.add_argument("--export", type=Path, help="write ONNX and VNN-LIB files there instead")
    given = parser.parse_args()
    if given.export is not None:
        export(given.export)
        return
    rows = [HEAD, *(row(name, given.seconds) for name in BUILDERS)]
    missed = sum(r[HEAD.index("fused")] == "holds" or r[HEAD.index("certificate")] == "VALID" for r in rows)
    summary = f"{len(rows) - 1} attacks, {given.seconds:g} s per verdict; missed by fused or by the checker: {missed}."
    print(table(rows), "", summary, sep="\n")
    (ROOT / "benchmarks" / "attacks.txt").write_text(f"{table(rows)}\n\n{summary}\n")
    write_page(rows, summary)


if __name__ == "__main__":
    main()
