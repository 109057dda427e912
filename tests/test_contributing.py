"""CONTRIBUTING's worked examples: one record, and everything else picks it up."""

from __future__ import annotations

import re
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from random import Random
from types import SimpleNamespace

import numpy as np
import pytest

import laws
import specgrad as sg
from slices import slices
from specgrad.facts import Names
from specgrad.graph.files.save import from_json, to_json
from specgrad.op import REGISTRY, Op
from specgrad.window import strided

PAGE = Path(__file__).parents[1] / "CONTRIBUTING.md"


@pytest.fixture
def square_pool():
    """The operator of the page's code block, registered for one test."""
    _, block = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    namespace: dict = {}
    exec(block, namespace)
    yield namespace["SQUARE_POOL"]
    del REGISTRY["square_pool"]


def net(op: Op):
    window = strided("square_pool", (6,), (3,), stride=(2,), padding=((1, 1),))
    return lambda x: sg.apply(op, x, window=window)


@pytest.mark.parametrize("seeds", slices(50, 200))
def test_laws(square_pool: Op, seeds: range) -> None:
    for seed in seeds:
        rng = Random(seed)
        laws.check_all(square_pool, square_pool.cases(rng), rng)


def test_values_and_derivatives(square_pool: Op) -> None:
    graph = sg.trace(net(square_pool), (6,))
    x = sg.exact([1, 2, 3, 4, 5, 6])
    assert graph(x).tolist() == [1 + 4, 4 + 9 + 16, 16 + 25 + 36]
    assert sg.jvp(graph)(x, sg.exact([1, 0, 0, 1, 0, 0]))[1].tolist() == [2, 8, 8]
    assert sg.vjp(graph)(x, sg.exact([1, 10, 100]))[1].tolist() == [2, 44, 60, 880, 1000, 1200]
    second = sg.jvp(sg.vjp(graph), "x")
    assert second(x, sg.exact([1, 1, 1]), sg.exact([1, 0, 0, 0, 0, 0]))[3].tolist() == [2, 0, 0, 0, 0, 0]


def test_its_rules_are_shown_and_proven_adjoint(square_pool: Op) -> None:
    graph = sg.trace(net(square_pool), (6,))
    tangent, cotangent = sg.rule_graphs(square_pool, (6,), **graph.nodes[1].params)
    assert [n.op.name for n in tangent.nodes if n.args] == ["mul", "mul", "avg_pool"]
    assert [n.op.name for n in cotangent.nodes if n.args] == ["avg_spread", "mul", "mul"]
    assert sg.prove_adjoint(graph).proven


def test_printing_and_serialization(square_pool: Op) -> None:
    graph = sg.trace(net(square_pool), (6,))
    row = next(line for line in str(graph).splitlines() if "square_pool" in line)
    assert row.split() == ["square_pool", "square_pool", "k3", "s2", "p1", "3", "3"]
    again = from_json(to_json(graph))
    assert (again(np.arange(6.0)) == graph(np.arange(6.0))).all()


# --- a function of one cell -------------------------------------------------------------------------------------------


@pytest.fixture
def softsign():
    """The lines of the page, run among the names of the file that they are for."""
    block, _ = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    path = re.match(r"# src/(\S+)\.py\n", block)[1]
    known = import_module("specgrad.interop.onnx.read.convert_node").all_operators()
    composed = known.pop("Softsign")  # which is read as an expression, as long as there is no record
    for module in ("engines.torch.lowerings", "engines.jax.lowerings", "interop.onnx.write.model"):
        import_module(f"specgrad.{module}")  # whose tables are made without it
    names = {**vars(import_module(path.replace("/", "."))), "abs_": sg.abs}
    exec(block, names)
    yield names["SOFTSIGN"]
    known["Softsign"] = composed
    del REGISTRY["softsign"]


@pytest.mark.parametrize("seeds", slices(50, 200))
def test_a_function_of_one_cell(softsign: Op, seeds: range) -> None:
    """Laws, engines and derivatives."""
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    for seed in seeds:
        rng = Random(seed)
        laws.check_all(softsign, softsign.cases(rng), rng)
    assert sg.apply(softsign, sg.exact([-3, 0, 1])).tolist() == [Fraction(-3, 4), 0, Fraction(1, 2)]
    x = np.linspace(-3, 3, 7)
    t = torch.tensor(x, requires_grad=True)
    y = sg.apply(softsign, t)
    y.sum().backward()
    np.testing.assert_allclose(y.detach(), x / (1 + np.abs(x)), rtol=1e-15)
    np.testing.assert_allclose(t.grad, 1 / (1 + np.abs(x)) ** 2, rtol=1e-15)
    got = sg.apply(softsign, jax.numpy.asarray(np.float32(x)))
    np.testing.assert_allclose(got, x / (1 + np.abs(x)), rtol=3e-7)
    slope = jax.grad(lambda v: sg.apply(softsign, v).sum())(jax.numpy.asarray(np.float32(x)))
    np.testing.assert_allclose(slope, 1 / (1 + np.abs(x)) ** 2, rtol=1e-6)


def test_its_rounding_and_bounds(softsign: Op) -> None:
    """Radii hold float32 results in numpy's own arithmetic; interval and linear bounds the exact range of the box."""
    from specgrad.bounds import Box, crown, ibp
    from specgrad.rounding import radius

    graph = sg.trace(lambda x: sg.apply(softsign, x * 3), (400,))
    x = np.random.default_rng(0).normal(size=400).astype(np.float32)
    z = x * np.float32(3)
    assert radius(graph, x).outputs.contains(z / (np.float32(1) + np.abs(z))).all()
    assert radius(graph, x).outputs.radius.max() < 1e-6
    low, high = x.astype(float) - 0.5, x.astype(float) + 0.5
    ends = [3 * e / (1 + np.abs(3 * e)) for e in (low, high)]
    for bound in (ibp, crown):
        box = bound(graph, Box(low, high)).outputs
        assert (box.low <= ends[0]).all()
        assert (box.high >= ends[1]).all()
        assert np.max(ends[0] - box.low) < 1e-5
    slopes = crown(sg.trace(lambda x: sg.apply(softsign, x) - x / 2, (1,)), Box([0.5], [1.0]), deployed=False).outputs
    assert 0.05 < slopes.high - slopes.low < 0.2  # intervals alone give 0.42


def test_its_onnx_files(softsign: Op) -> None:
    ort = pytest.importorskip("onnxruntime")
    from specgrad.interop import from_onnx, to_onnx

    graph = sg.trace(lambda x: sg.apply(softsign, x), (1, 5))
    model = to_onnx(graph)
    assert [n.op_type for n in model.graph.node] == ["Softsign"]
    x = np.float32([[-2, -1, 0, 1, 2]])
    session = ort.InferenceSession(model.SerializeToString())
    (got,) = session.run(None, {model.graph.input[0].name: x})
    np.testing.assert_allclose(got, graph(x), rtol=3e-7)
    assert [n.op.name for n in from_onnx(model).nodes] == ["input", "softsign"]


# --- what is forgotten ------------------------------------------------------------------------------------------------


def test_every_function_is_public() -> None:
    functions = {name for name, op in REGISTRY.items() if op.curve is not None} - {"root"}  # lp_pool's
    assert functions <= set(sg.__all__)


def test_every_function_has_its_names() -> None:
    """Engines need no line of a function that they have; who has another one says so in the engine's table."""
    torch, jax = (pytest.importorskip(f"specgrad.engines.{name}.lowerings").TABLE for name in ("torch", "jax"))
    assert set(torch) == set(jax) == set(REGISTRY)
    read = {op.names.onnx for op in REGISTRY.values() if op.names.opsets}
    written = {op.names.onnx for op in REGISTRY.values() if op.curve is not None and not op.param_names}
    assert written - read == {"", "Gelu"}  # Gelu has an attribute when it is read


def unnamed(functions: dict[str, Op]) -> set[str]:
    """Functions of one cell that PyTorch, NumPy or ONNX have by the same name, and that are not read from there."""
    onnx, torch = pytest.importorskip("onnx"), pytest.importorskip("torch")
    read = import_module("specgrad.interop.onnx.read.convert_node").all_operators()
    schemas = {s.name.lower(): s.name for s in onnx.defs.get_all_schemas() if s.domain == ""}
    ufuncs = import_module("specgrad.graph.var").UFUNCS
    missing = set()
    for name, op in functions.items():
        schema, ufunc = schemas.get(name.replace("_", "")), getattr(np, name, None)
        missing |= {f"ONNX {schema}"} if schema not in (None, op.names.onnx) and schema not in read else set()
        if isinstance(ufunc, np.ufunc) and ufunc.__name__ != op.names.numpy and ufunc.__name__ not in ufuncs:
            missing.add(f"numpy {name}")
        overloads = getattr(torch.ops.aten, name).overloads() if hasattr(torch.ops.aten, name) else ()
        converter_for = import_module("specgrad.interop.torch.aten").converter_for
        if "default" in overloads and op.names.aten != f"{name}.default" and converter_for(f"{name}.default") is None:
            missing.add(f"aten {name}")
    return missing


def test_what_others_call_by_the_same_name_is_read() -> None:
    functions = {name: op for name, op in REGISTRY.items() if op.curve is not None}
    assert unnamed(functions) == set()
    forgotten = SimpleNamespace(names=Names(torch="torch.atanh", jax="jnp.arctanh"))
    assert unnamed({"atanh": forgotten}) == {"ONNX Atanh", "numpy atanh", "aten atanh"}


INNER = {"root", "less", "top", "top_index", "winner", "last_writer", "median_index"}  # parts of public functions
ADJOINT = {"avg_spread", "conv_weight", "resize_spread", "smooth_pull", "smooth_push"}  # of derivative rules


def test_every_operator_is_public_or_a_part() -> None:
    assert REGISTRY.keys() - set(sg.__all__) == INNER | ADJOINT


def test_a_window_says_what_is_read() -> None:
    """Values over windows state the cells that they read, and the boxes, by which they are cut into tiles."""
    found = {name: op for name, op in REGISTRY.items() if "window" in op.param_names and op.reads == "window"}
    for name, op in found.items():
        args, params = op.cases(Random(3))
        reach = op.receptive_field(*(a.shape for a in args), **params)
        assert reach == params["window"].reach() or name == "smooth_pull", name
    assert {name for name, op in found.items() if op.footprint is None} == {"winner", "median_index", "smooth_pull"}


def test_a_position_jumps() -> None:
    """A derivative does not see where the winner changes; of positions alone (last_writer) nothing is derived."""
    assert {n for n, op in REGISTRY.items() if op.kind == "index" and not op.jumps} == {"last_writer"}
