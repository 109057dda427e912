"""What runtimes make of formulas that have a kernel, drawn: whoever leaves the radius is excluded by name.

Gelus whose numbers are near the true ones, log(exp(x) + 1), gates with a factor behind a clip, and the same with
numbers that no pattern takes; on ONNX Runtime and OpenVINO, fully optimised, with the errors of each runtime.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

from specgrad.declared_errors import declared
from specgrad.graph.graph import Graph
from specgrad.interop import from_onnx
from specgrad.proof.base.executions import exclusion
from specgrad.rounding import Arithmetic, radius

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("openvino")

X = np.linspace(-6, 6, 256, dtype=np.float32)[None]
BODIES = {
    "erf": "a=Div(x,r) b=Erf(a) c=Add(b,one) d=Mul(x,c) y=Mul(d,h)",
    "tanh": "g=Mul(x,h) p=Pow(x,three) a=Mul(p,k) b=Add(x,a) c=Mul(b,s) t=Tanh(c) u=Add(t,one) y=Mul(g,u)",
    "softplus": "a=Exp(x) b=Add(a,one) y=Log(b)",
    "gate": "a=Add(x,three) c=Clip(a,zero,six) p=Mul(x,c) y=Div(p,six)",
}
NUMBERS = {"one": 1, "h": 0.5, "three": 3, "zero": 0, "six": 6, "r": math.sqrt(2), "k": 0.044715}
NUMBERS |= {"s": math.sqrt(2 / math.pi)}


def drawn(rng: Random) -> tuple[str, Any]:
    """A formula, some of its numbers moved a little or much."""
    kind = rng.choice(list(BODIES))
    numbers = dict(NUMBERS)
    for name in ("r", "s", "k"):
        numbers[name] *= 1 + rng.choice((0, -1e-5, -5e-3, 0.02, 0.3))
    used = {name: float(np.float32(v)) for name, v in numbers.items() if re.search(rf"\b{name}[,)]", BODIES[kind])}
    given = ", ".join(f"float {name}={{{v!r}}}" for name, v in used.items())
    head = '<ir_version: 8, opset_import: ["" : 18]> g (float[1,256] x) => (float[1,256] y)'
    return kind, onnx.parser.parse_model(f"{head} <{given}> {{ {BODIES[kind]} }}")


def on_onnxruntime(model: Any) -> np.ndarray:
    import onnxruntime

    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": X})[0])


def on_openvino(model: Any) -> np.ndarray:
    import openvino

    core = openvino.Core()
    read = core.read_model(model.SerializeToString())
    program = core.compile_model(read, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return np.asarray(next(iter(program([X]).values())))


RUNS = {"onnxruntime": on_onnxruntime, "openvino-f32": on_openvino}


def runs_of(seeds: range) -> list[tuple[str, str, Graph, bool]]:
    """Formula, runtime, graph, and whether a cell lies outside the radius."""
    made = []
    for seed in seeds:
        kind, model = drawn(Random(seed))
        graph = from_onnx(model)
        for name, run in RUNS.items():
            ball = radius(graph, X, arithmetic=Arithmetic(ulps=declared(name))).outputs
            made.append((kind, name, graph, not ball.contains(run(model)).all()))
    return made


def unnamed(runs: list[tuple[str, str, Graph, bool]], said: Callable[[Graph], str]) -> set[tuple[str, str]]:
    """Formulas and runtimes that left the radius while nothing was excluded."""
    return {(kind, name) for kind, name, graph, outside in runs if outside and not said(graph)}


def test_whoever_leaves_the_radius_is_excluded_by_name() -> None:
    """Numbers of a gelu, a softplus and a moved factor that are not named are each seen."""
    runs = runs_of(range(20, 30))  # each formula left by somebody
    assert unnamed(runs, exclusion) == set()
    assert {kind for kind, *_ in runs} == set(BODIES)
    seen = unnamed(runs, lambda graph: "")
    assert {kind for kind, _ in seen} == set(BODIES), seen
    for word, kinds in (("gelu", {"erf", "tanh"}), ("softplus", {"softplus"}), ("factor", {"gate"})):
        forgotten = unnamed(runs, lambda graph, word=word: "" if word in exclusion(graph) else exclusion(graph))
        assert {kind for kind, _ in forgotten} == kinds, forgotten
