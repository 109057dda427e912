"""Constants that a runtime moves through a choice, or replaces: excluded by name, and named where they are met."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import specgrad as sg
import specgrad.proof.base.kernel_formulas
from specgrad.bounds import Box, certify, crown, ibp
from specgrad.check import audit, audit_recorded
from specgrad.check.verdicts.rewritten_formulas import FORMULA, MOVED, REPLACED, rewritings
from specgrad.cli.main import app
from specgrad.interop import from_onnx
from specgrad.proof.base.executions import exclusion, scaled_choices
from specgrad.rounding import Arithmetic, radius

onnx = pytest.importorskip("onnx")
pytest.importorskip("torch")

pytestmark = pytest.mark.usefixtures("kept_workers")
SWISH = "a=Add(x,three) c=Clip(a,zero,six) p=Mul(x,c) y=Div(p,six)"
SIGMOID = "a=Add(x,three) r=Relu(a) q=Min(r,six) y=Mul(q,sixth)"
NUMBERS = "<float three={3}, float six={6}, float zero={0}, float sixth={0.16666667}>"
NEAR = np.float32([[-2.9729292, -2.999, -2.9999, -2.99999]])


def model(body: str, cells: int = 4) -> Any:
    head = f'<ir_version: 8, opset_import: ["" : 18]> g (float[1,{cells}] x) => (float[1,{cells}] y)'
    return onnx.parser.parse_model(f"{head} {NUMBERS} {{ {body} }}")


def on_openvino(m: Any, x: np.ndarray) -> np.ndarray:
    ov = pytest.importorskip("openvino")
    core = ov.Core()
    program = core.compile_model(core.read_model(m.SerializeToString()), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return np.asarray(next(iter(program([x]).values())))


# --- where it can happen --------------------------------------------------------------------------------------------


def test_where_constants_stand_by_choices() -> None:
    rows = np.eye(2, dtype=np.float32)
    cases: list[tuple[Any, tuple[str, ...]]] = [
        (lambda x: x * sg.clamp(x + 3, 0, 6) / 6, ("clamp",)),
        (lambda x: sg.relu(x) * 0.1, ("relu",)),
        (lambda x: sg.relu(x * 0.1 + 1), ("relu",)),
        (lambda x: sg.reshape(sg.maximum(x, -x), (2, 1)) / 3, ("maximum",)),
        (lambda x: sg.sum(sg.relu(x)) * 0.1, ("relu",)),
        (lambda x: sg.relu(sg.sum(x * 0.1, keepdims=True)), ("relu",)),
        (lambda x: sg.mean(sg.relu(x)) * 0.1, ("relu",)),
        (lambda x: sg.cumsum(sg.relu(x), 0) * 0.1, ("relu",)),
        (lambda x: sg.cast(sg.relu(x), "float16") * 0.1, ("relu",)),
        (lambda x: sg.avg_pool(sg.relu(sg.reshape(x, (1, 2))), (2,)) * 0.1, ("relu",)),
        (lambda x: sg.relu(x * 0.1 * x), ("relu",)),
        (lambda x: sg.relu(x / (x * 0.1)), ("relu",)),
        (lambda x: sg.relu(sg.matmul(sg.reshape(x * 0.1, (1, 2)), sg.reshape(x, (2, 1)))), ("relu",)),
        (lambda x: sg.mean(sg.relu(x)), ()),
        (lambda x: sg.sum(sg.relu(x)), ()),
        (lambda x: sg.sum(sg.relu(x)) / 3, ("relu",)),
        (lambda x: sg.relu(x) * 1.0, ()),
        (lambda x: sg.relu(x) + 1, ()),
        (lambda x: sg.tanh(x) * 0.1, ()),
        (lambda x: sg.linear(rows, None, sg.relu(sg.linear(rows, None, x))), ()),
        (lambda x: sg.linear(rows, None, sg.relu(x)) * 0.1, ()),
    ]
    for net, names in cases:
        assert scaled_choices(sg.trace(net, (2,))) == names


def test_every_statement_names_the_choice() -> None:
    """radius, ibp and crown; where there is no such constant nothing is added."""
    graph, plain = sg.trace(lambda x: sg.relu(x) * 0.1, (2,)), sg.trace(sg.relu, (2,))
    x = np.float32([1, 2])
    for given, expected in ((graph, exclusion(graph)), (plain, None)):
        statements = radius(given, x), ibp(given, Box(x, x)), crown(given, Box(x, x))
        assert [s.deployment.get("choices") for s in statements] == [expected] * 3
    assert "relu" in exclusion(graph)
    assert "moved across relu" in Arithmetic().deployment["rewriting"]
    assert "choices" not in ibp(graph, Box(x, x), deployed=False).deployment


# --- what OpenVINO does ---------------------------------------------------------------------------------------------


def test_openvino_leaves_the_class_and_the_statement_says_so() -> None:
    """x*clip(x+3,0,6)/6 is x*clip(x/6+1/2,0,1) there: thousands of radii off, and within those of the moved graph."""
    m = model(SWISH)
    y, graph = on_openvino(m, NEAR), from_onnx(m)
    report = radius(graph, NEAR)
    assert not report.outputs.contains(y).all()
    assert "through c, " in report.deployment["choices"]
    moved = [g for name, _, g in rewritings(graph) if name == MOVED]
    assert moved
    for other in moved:
        ball = radius(other, NEAR).outputs
        assert ball.contains(y).all()
        np.testing.assert_allclose(ball.value, report.outputs.value, rtol=1e-9, atol=1e-15)


def test_the_moved_graph_is_the_same_function() -> None:
    """Over fractions, on both sides of both limits."""
    nets = [lambda x: x * sg.clamp(x + 3, 0, 6) / 6, lambda x: sg.minimum(sg.relu(x - 1), 4) * 3 - sg.relu(x) / 4]
    x = np.array([Fraction(k, 16) for k in range(-160, 160, 7)], dtype=object)
    for net in nets:
        graph = sg.trace(net, x.shape)
        others = [other for name, _, other in rewritings(graph) if name == MOVED]
        assert others
        assert all((graph(x) == other(x)).all() for other in others)


def test_holds_says_what_is_excluded_in_its_own_line(tmp_path: Path) -> None:
    """Hard sigmoid by hand: certify holds, OpenVINO breaks it, and the line says which executions are not meant."""
    m = model(SIGMOID, 1)
    x = np.float32([[3.5]])
    onnx.save(m, tmp_path / "h.onnx")
    lines = ("(declare-const X_0 Real)", "(declare-const Y_0 Real)", "(assert (>= X_0 3.25))", "(assert (<= X_0 3.75))")
    (tmp_path / "p.vnnlib").write_text("\n".join([*lines, "(assert (<= Y_0 0.99999995))"]))
    args = ["certify", str(tmp_path / "h.onnx"), str(tmp_path / "p.vnnlib")]
    first = CliRunner().invoke(app, args).stdout.splitlines()[0]
    assert first.startswith("holds")
    assert "; but executions that move a constant factor through r, q" in first
    assert "or take another number for it, are excluded" in first
    data = json.loads(CliRunner().invoke(app, [*args, "--json"]).stdout)
    assert "through r, q" in data["deployment"]["choices"]
    assert "nor replaced by others" in data["deployment"]["rewriting"]
    assert on_openvino(m, x).item() <= 0.99999995


def test_a_valid_certificate_says_it_too() -> None:
    pytest.importorskip("flint")
    from specgrad.bounds import prove
    from specgrad.proof.api import check

    graph = sg.trace(lambda x: sg.relu(x) * np.float32(0.1), (2,))
    stated = [1.0, 0.5], 0, 0.125
    checked = check(prove(graph, stated), graph, stated)
    assert str(checked).startswith(f"valid ({exclusion(graph)}): on a box")
    assert checked.to_json()["deployment"]["choices"] == exclusion(graph)
    assert certify(graph, stated).deployment["choices"] == exclusion(graph)


# --- audits ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("body", "layer", "name"), [(SWISH, "p", MOVED), (SIGMOID, "y", REPLACED)])
def test_an_audit_names_the_rewriting(body: str, layer: str, name: str, tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    onnx.save(model(body, 400), tmp_path / "net.onnx")
    args = ["audit", str(tmp_path / "net.onnx"), "--runtime", "openvino-f32", "--json"]
    data = json.loads(CliRunner().invoke(app, args).stdout)
    rows = {row["layer"]: row for row in data["layers"]}
    assert (rows[layer]["verdict"], rows[layer]["arithmetic"]) == ("other arithmetic", name)
    assert all(row["verdict"] in ("exact", "rounding") for n, row in rows.items() if n != layer)
    accepted = CliRunner().invoke(app, [*args, "--accept", name, "--accept", "float32"])
    assert {row["verdict"] for row in json.loads(accepted.stdout)["layers"]} <= {"exact", "rounding"}


def test_a_fault_is_no_rewriting() -> None:
    """Limits, a factor and a shift that are wrong by 1e-4 lie in no ball of a rewritten graph."""
    graph = from_onnx(model(SWISH))
    x = np.float32([[-2.0, 0.5, 2.0, 4.0]])
    wrong = [lambda v: v * np.clip(v + 3.0001, 0, 6) / 6, lambda v: v * np.clip(v + 3, 0, 6) / 6.0006]
    for f in wrong:
        assert not any(radius(g, x).outputs.contains(f(x.astype(float))).all() for _, _, g in rewritings(graph))


# --- functions that are written out -----------------------------------------------------------------------------------

SOFTPLUS_BODY = "a=Exp(x) b=Add(a,one) y=Log(b)"


def softplus_model(cells: int = 4) -> Any:
    head = f'<ir_version: 8, opset_import: ["" : 18]> g (float[1,{cells}] x) => (float[1,{cells}] y)'
    return onnx.parser.parse_model(f"{head} <float one={{1}}> {{ {SOFTPLUS_BODY} }}")


def test_where_a_softplus_is_written_out() -> None:
    nets: list[tuple[Any, bool]] = [
        (lambda x: sg.log(sg.exp(x) + 1), True),
        (lambda x: x * sg.tanh(sg.log(1 + sg.exp(-x))), True),
        (lambda x: sg.log(sg.exp(x) + 2), False),
        (lambda x: sg.log(sg.exp(x) + x), False),
        (lambda x: sg.log(x + 1), False),
        (sg.softplus, False),
    ]
    x = np.linspace(-4, 4, 9)
    for net, written in nets:
        graph = sg.trace(net, (9,))
        assert ("as a softplus" in exclusion(graph)) == written
        others = [g for name, _, g in rewritings(graph) if name == FORMULA]
        assert bool(others) == written
        assert all(np.allclose(g(x), graph(x), rtol=1e-14, atol=0) for g in others)
    assert "softplus" in Arithmetic().deployment["rewriting"]


def test_openvino_runs_its_softplus_and_the_audit_says_so(tmp_path: Path) -> None:
    """The same kernel is rounding where the file says Softplus: its error is no fault of the logarithm."""
    m, x = softplus_model(512), np.linspace(-6, 6, 512, dtype=np.float32)[None]
    y, report = on_openvino(m, x), radius(from_onnx(m), x)
    assert not report.outputs.contains(y).all()
    assert report.deployment["choices"] == "executions that compute log(exp(x) + 1) at y as a softplus are excluded"
    for of in ("openvino-f32", None):
        audited = audit_recorded(m, {"x": x, "y": y}, of=of)
        assert (audited.verdict, audited.whole.arithmetic) == ("other arithmetic", FORMULA)
    audited = audit(m, "openvino-f32", x)
    assert [(row.name, row.verdict.kind) for row in audited.layers][-1] == ("y", "other arithmetic")
    assert audit(m, "openvino-f32", x, accept=[FORMULA]).verdict == "rounding"


def test_a_wrong_softplus_is_none() -> None:
    """Off by a thousandth, or by a few units more than any kernel is."""
    m, x = softplus_model(), np.float32([[-2.0, 0.5, 2.0, 4.0]])
    exact = np.logaddexp(0, x.astype(float))
    for y in (exact * 1.001, exact + 16 * 2.0**-24 * (1 + exact)):
        assert audit_recorded(m, {"x": x, "y": y.astype(np.float32)}).verdict == "differs"


# --- formulas that kernels replace ------------------------------------------------------------------------------------

FORMS = {
    "silu": "n=Neg(x) a=Exp(n) b=Add(a,one) y=Div(x,b)",
    "mish": "a=Exp(x) b=Add(a,one) c=Log(b) d=Tanh(c) y=Mul(x,d)",
    "gelu by erf": "a=Div(x,root) b=Erf(a) c=Add(b,one) d=Mul(x,c) y=Mul(d,half)",
    "gelu by tanh": "h=Mul(x,half) p=Pow(x,three) q=Mul(p,k) r=Add(x,q) s=Mul(r,s2) t=Tanh(s) u=Add(t,one) y=Mul(h,u)",
    "softmax": "a=Exp(x) s=ReduceSum<keepdims=1>(a,axis) y=Div(a,s)",
    "shifted softmax": "m=ReduceMax<keepdims=1>(x,axis) c=Sub(x,m) a=Exp(c) s=ReduceSum<keepdims=1>(a,axis) y=Div(a,s)",
    "RMS norm": "a=Mul(x,x) m=ReduceMean<keepdims=1>(a,axis) e=Add(m,eps) r=Sqrt(e) y=Div(x,r)",
    "mean-variance norm": "m=ReduceMean<keepdims=1>(x,axis) c=Sub(x,m) q=Pow(c,two) v=ReduceMean<keepdims=1>(q,axis) "
    "e=Add(v,eps) r=Sqrt(e) y=Div(c,r)",
}
FORM_NUMBERS = (
    "<float one={1}, float root={1.4142135623730951}, float half={0.5}, float three={3}, float k={0.044715}, "
    "float s2={0.7978845608028654}, float two={2}, float eps={0.00001}, int64[1] axis={1}>"
)


def form_model(name: str, rows: int = 8, cells: int = 33) -> Any:
    head = f'<ir_version: 8, opset_import: ["" : 18]> g (float[{rows},{cells}] x) => (float[{rows},{cells}] y)'
    return onnx.parser.parse_model(f"{head} {FORM_NUMBERS} {{ {FORMS[name]} }}")


def layer_by_layer(m: Any, x: np.ndarray) -> dict[str, np.ndarray]:
    """What OpenVINO computes where all values are outputs."""
    ov = pytest.importorskip("openvino")
    every = onnx.shape_inference.infer_shapes(m)
    names = [n.output[0] for n in every.graph.node if n.output[0] != "y"]
    every.graph.output.extend(v for v in every.graph.value_info if v.name in names)
    core = ov.Core()
    program = core.compile_model(core.read_model(every.SerializeToString()), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return {"x": x} | {k.get_any_name(): np.array(v) for k, v in program([x]).items()}


@pytest.mark.parametrize("name", FORMS)
def test_a_kernel_in_place_of_a_formula_is_no_fault(name: str) -> None:
    """OpenVINO reads x, not the values between: its layers differ from those, and not from the formula."""
    m = form_model(name)
    for scale, seed in ((1.0, 3), (4.0, 4), (1e-3, 5)):
        x = np.random.default_rng(seed).normal(size=(8, 33)).astype(np.float32) * np.float32(scale)
        if name == "mish":
            x = np.maximum(x, -5)  # OpenVINO's softplus is wrong below -6
        audited = audit_recorded(m, layer_by_layer(m, x), of="openvino-f32")
        kinds = {row.name: (row.verdict.kind, row.verdict.arithmetic) for row in audited.layers}
        other = ("other arithmetic", FORMULA)
        assert all(kind in (("exact", ""), ("rounding", ""), other) for kind in kinds.values()), (scale, kinds)
        assert kinds["y"] != other or name in ("silu", "mish", "softmax")
        assert audited.whole.kind in ("exact", "rounding") or (name, audited.whole.arithmetic) == ("mish", FORMULA)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _gelu(x: np.ndarray, approximate: str) -> np.ndarray:
    return np.asarray(sg.gelu(x, approximate))


WRONG = {
    "silu": lambda x: x * _sigmoid(x * 1.0001),
    "mish": lambda x: x * np.tanh(np.logaddexp(0, x + 1e-5)),
    "gelu by erf": lambda x: _gelu(x, "tanh"),
    "gelu by tanh": lambda x: _gelu(x, "none"),
    "softmax": lambda x: np.exp(x) / (np.exp(x).sum(1, keepdims=True) - np.exp(x).min(1, keepdims=True)),
    "shifted softmax": lambda x: np.exp(x) / np.exp(x).sum(0, keepdims=True),
    "RMS norm": lambda x: x / np.sqrt((x * x).mean(1, keepdims=True)),
    "mean-variance norm": lambda x: (x - x.mean(1, keepdims=True)) / x.std(1, ddof=1, keepdims=True),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_kernel_in_place_of_a_formula_is_a_fault(name: str) -> None:
    m, x = form_model(name, 4, 4), np.random.default_rng(2).normal(size=(4, 4)).astype(np.float32)
    known = layer_by_layer(m, x)
    known["y"] = WRONG[name](x.astype(float)).astype(np.float32)
    for given in (known, {"x": x, "y": known["y"]}):
        assert audit_recorded(m, given, of="openvino-f32").verdict == "differs"


def test_a_kernel_of_another_function_explains_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong line in the table: what it computes does not hold the exact value."""
    m, x = form_model("silu", 4, 4), np.random.default_rng(2).normal(size=(4, 4)).astype(np.float32)
    y = x * _sigmoid(x.astype(float) * 1.0001)
    wrong = [
        replace(f, kernel=lambda x, _: x * sg.sigmoid(x * 1.0001)) if f.text == "x/(1 + exp(-x))" else f
        for f in specgrad.proof.base.kernel_formulas.FORMULAS
    ]
    monkeypatch.setattr(specgrad.proof.base.kernel_formulas, "FORMULAS", tuple(wrong))
    specgrad.proof.base.kernel_formulas._table.cache_clear()
    try:
        graph = from_onnx(m)
        (other,) = [g for name, _, g in rewritings(graph) if name == FORMULA]
        assert radius(other, x).outputs.contains(y).all()
        assert audit_recorded(m, {"x": x, "y": y.astype(np.float32)}).verdict == "differs"
    finally:
        monkeypatch.undo()
        specgrad.proof.base.kernel_formulas._table.cache_clear()


# --- numbers of a gelu ----------------------------------------------------------------------------------------------


def tanh_gelu(inner: float, cubic: float) -> Any:
    numbers = f"<float three={{3}}, float k={{{cubic}}}, float s={{{inner}}}, float one={{1}}, float h={{0.5}}>"
    body = "g=Mul(x,h) p=Pow(x,three) a=Mul(p,k) b=Add(x,a) c=Mul(b,s) t=Tanh(c) u=Add(t,one) y=Mul(g,u)"
    head = '<ir_version: 8, opset_import: ["" : 18]> g (float[1,4] x) => (float[1,4] y)'
    return onnx.parser.parse_model(f"{head} {numbers} {{ {body} }}")


def test_numbers_near_those_of_a_gelu_are_named() -> None:
    assert exclusion(from_onnx(tanh_gelu(0.7978845608, 0.044715))) == ""
    assert "take a gelu's number for 0.044, 0.79" in exclusion(from_onnx(tanh_gelu(0.79, 0.044)))
    assert exclusion(sg.trace(lambda x: sg.exp(x * 0.79), (2,))) == ""


def test_openvino_takes_a_gelus_numbers() -> None:
    """Out of the class; in the radius with the gelu's numbers, in which the right values are not."""
    m, x = tanh_gelu(0.79, 0.044), np.float32([[-2.0, -0.5, 0.5, 1.0]])
    y, graph = on_openvino(m, x), from_onnx(m)
    report = radius(graph, x)
    assert not report.outputs.contains(y).all()
    assert "a gelu's number" in report.deployment["choices"]
    (other,) = [g for name, _, g in rewritings(graph) if name == REPLACED]
    ball = radius(other, x).outputs
    assert ball.contains(y).all()
    assert not ball.contains(report.outputs.value).any()
