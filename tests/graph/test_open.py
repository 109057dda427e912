"""Graphs with open sizes: at every size they are the graph that a trace at that size gives, or they refuse."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from generated import program

import specgrad as sg
from slices import slices
from specgrad.errors import FileError, ShapeError, SpecgradError
from specgrad.graph.ir import symbolic as opening
from specgrad.window import SymbolicSize

pytestmark = pytest.mark.usefixtures("little_optimised")

BATCHES = (1, 2, 3, 5, 7, 8, 16)
JITTED = (1, 3)  # of them: jit takes seconds a size
Rng = np.random.Generator


def same(found: sg.Graph, fresh: sg.Graph) -> None:
    """Node by node. Names count on past a node that is left out where it would change nothing."""
    content = lambda g: [(n.op, n.args, n.params, n.shape, n.kind) for n in g.nodes]
    assert content(found) == content(fresh)
    assert all(type(n) is int for node in found.nodes for n in node.shape)
    assert (found.names, found.inputs, found.outputs, found.single) == (
        fresh.names,
        fresh.inputs,
        fresh.outputs,
        fresh.single,
    )
    assert found.constants.keys() == fresh.constants.keys()
    for i, constant in found.constants.items():
        other = fresh.constants[i]
        assert (constant.shape, constant.dtype) == (other.shape, other.dtype)
        assert (constant == other).all() if constant.dtype == object else constant.tobytes() == other.tobytes()


PARTS = [0, *(pytest.param(part, marks=pytest.mark.slow) for part in (1, 2, 3, 4))]

# --- the batch ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seeds", slices(12, 100))
def test_generated_graphs_with_an_open_batch_are_fresh_traces(seeds: range) -> None:
    for seed in seeds:
        run, _, x = program(seed)
        graph = sg.trace(run, ("N", *x.shape[1:]))
        for n in BATCHES:
            fresh = sg.trace(run, (n, *x.shape[1:]))
            same(graph.at(N=n), fresh)
            if n > 1:
                assert graph.at(N=n).nodes == fresh.nodes  # with all names
        same(sg.vjp(graph).at(N=3), sg.vjp(sg.trace(run, (3, *x.shape[1:]))))


def lenet(params, x):
    with sg.scope("stem"):
        x = sg.relu(sg.conv(params["w"], params["b"], x, stride=2, padding=1))
    x = sg.max_pool(x, (3, 3), stride=2, padding=1)
    return sg.linear(params["fc"], None, sg.flatten(x, 1))


SHAPES = {"w": (4, 2, 3, 3), "b": (4,), "fc": (3, 16)}


def loss(p, x, y):
    return sg.cross_entropy(lenet(p, x), y)


def params(rng: Rng) -> dict[str, np.ndarray]:
    return {name: rng.normal(size=s) for name, s in SHAPES.items()}


@pytest.mark.parametrize("jitted", [JITTED, pytest.param(BATCHES, marks=pytest.mark.slow)], ids=["some", "all"])
def test_one_graph_runs_every_batch_on_both_engines_with_its_gradient(jitted: tuple[int, ...]) -> None:
    """Expected: the function itself on arrays, and PyTorch's own autograd of PyTorch's own operators."""
    rng = np.random.default_rng(0)
    graph = sg.trace(loss, SHAPES, ("N", 2, 8, 8), sg.Index(("N",)))
    on_torch, on_jax = sg.compile(graph, "torch"), sg.compile(graph, "jax", jit=False)
    grad_torch, grad_jax = (sg.compile(graph, engine, "grad", wrt="p") for engine in ("torch", "jax"))
    for n in BATCHES:
        p, x, y = params(rng), rng.normal(size=(n, 2, 8, 8)), rng.integers(0, 3, n)
        leaves = {name: torch.tensor(a, requires_grad=True) for name, a in p.items()}
        z = torch.nn.functional.conv2d(torch.from_numpy(x), leaves["w"], leaves["b"], stride=2, padding=1).relu()
        z = torch.nn.functional.max_pool2d(z, 3, 2, 1).flatten(1) @ leaves["fc"].T
        expected = torch.nn.functional.cross_entropy(z, torch.from_numpy(y))
        expected.backward()
        assert graph(p, x, y) == pytest.approx(expected.item(), rel=1e-12)
        args = ({k: torch.from_numpy(a) for k, a in p.items()}, torch.from_numpy(x), torch.from_numpy(y))
        assert on_torch(*args).item() == pytest.approx(expected.item(), rel=1e-12)
        gradients = [sg.grad(graph, "p")(p, x, y), grad_torch(*args)]
        if n in jitted:
            with jax.enable_x64(True):
                arrays = jax.tree.map(jnp.asarray, (p, x, y))
                assert float(on_jax(*arrays)) == pytest.approx(expected.item(), rel=1e-12)
                gradients.append(grad_jax(*arrays))
        for found in gradients:
            for name, leaf in leaves.items():
                np.testing.assert_allclose(np.asarray(found[name]), leaf.grad.numpy(), rtol=1e-9, atol=1e-12)


def test_a_module_owns_its_parameters_at_every_batch() -> None:
    rng = np.random.default_rng(1)
    kernel = rng.normal(size=(4, 2, 3, 3))
    graph = sg.trace(lambda p, x: sg.linear(p["fc"], None, sg.flatten(sg.conv(kernel, None, x), 1)),
                     {"fc": (3, 16)}, ("N", 2, 4, 4))  # fmt: skip
    module = sg.compile(graph, "torch", parameters={"fc": rng.normal(size=(3, 16))})
    copies = (module, pickle.loads(pickle.dumps(module)), module.float())
    for n in BATCHES:
        for twin in copies:
            x = torch.ones(n, 2, 4, 4, dtype=twin.fc.dtype)
            right = torch.nn.functional.conv2d(x, torch.as_tensor(kernel).to(x.dtype)).flatten(1) @ twin.fc.T
            assert torch.allclose(twin(x), right, rtol=1e-4)
    module(torch.ones(5, 2, 4, 4)).sum().backward()
    assert module.fc.grad is not None
    assert [name for name, _ in module.named_parameters()] == ["fc"]


def test_to_torch_and_torch_compile_take_every_batch() -> None:
    from specgrad.interop import to_torch

    kernel = np.random.default_rng(2).normal(size=(4, 2, 3, 3)).astype(np.float32)
    module = to_torch(sg.trace(lambda x: sg.relu(sg.conv(kernel, None, x)), ("N", 2, 4, 4)), trainable=["constant"])
    compiled = torch.compile(module, backend="aot_eager")
    for n in (1, 3):
        x = torch.randn(n, 2, 4, 4)
        right = torch.nn.functional.conv2d(x, module.constant).relu()
        assert torch.equal(module(x), right)
        assert torch.equal(compiled(x), right)
    module(torch.ones(2, 2, 4, 4)).sum().backward()
    assert module.constant.grad is not None
    assert list(module.state_dict()) == ["constant"]


def test_captured_arrays_are_repeated_to_every_size_on_both_engines() -> None:
    """Integers, so that all of them must agree to the last bit with the function on arrays."""
    scale, shift = np.array([[2.0], [3.0]]), np.array([1.0, 5.0])
    f = lambda x: (x * scale)[:, ::1] + shift[:, None] - np.array(4.0)
    graph = sg.trace(f, ("N", 2, "H=3"))
    module, jitted = sg.compile(graph, "torch"), sg.compile(graph, "jax")
    from specgrad.interop import to_torch

    for shape in ((1, 2, 3), (4, 2, 3), (2, 2, 7), (1, 2, 1)):
        x = np.arange(np.prod(shape), dtype=float).reshape(shape)
        assert (graph(x) == f(x)).all()
        assert (module(torch.from_numpy(x)).numpy() == f(x)).all()
        assert (to_torch(graph)(torch.from_numpy(x)).numpy() == f(x)).all()
        with jax.enable_x64(True):
            assert (np.asarray(jitted(jnp.asarray(x))) == f(x)).all()
    with pytest.raises(SpecgradError, match="'constant' is repeated along an open size"):
        to_torch(graph, trainable=["constant"])


# --- spatial sizes --------------------------------------------------------------------------------------------------


def spatial_step(rng: Rng) -> Callable[[object], object]:
    """A layer on (N, 4, H, W) whose window, slice or count depends on the sizes."""
    kernel, deep = rng.normal(size=(4, 4, 3, 3)), rng.normal(size=(4, 4, 2, 2))
    choices: list[Callable] = [
        lambda x: sg.conv(kernel, None, x, padding="same_upper"),
        lambda x: sg.conv(kernel, None, x, stride=2, padding="same_lower"),
        lambda x: sg.conv(kernel, None, x, stride=(1, 2), padding=((1, 2), (0, 3)), dilation=(2, 1)),
        lambda x: sg.conv_transpose(deep, None, x, stride=2, output_padding=1, padding=1),
        lambda x: sg.max_pool(x, (3, 2), stride=2, padding=1, ceil=True),
        lambda x: sg.avg_pool(x, (2, 3), stride=(3, 2), padding=(1, 0), ceil=True, count_include_pad=False),
        lambda x: sg.max_pool(x, (2, 2), stride=3, padding=((0, 7), (1, 2)), ceil=True),
        lambda x: sg.adaptive_avg_pool(x, (5, 3)),
        lambda x: sg.adaptive_max_pool(x, (4, None)),
        lambda x: sg.upsample_nearest(x, (2, 3)),
        lambda x: x + sg.global_avg_pool(x, rank=2),
        lambda x: x - sg.global_max_pool(x, rank=2, ties="first"),
        lambda x: x[..., x.shape[-2] // 2 :, 1:-1],
        lambda x: sg.concat([x[..., ::2], sg.relu(x)[..., 1::2]], -1),
        lambda x: sg.pad(x, [(1, 2), (0, 1)]),
        lambda x: sg.reshape(sg.permute(x, (0, 1, 3, 2)), (x.shape[0], -1, x.shape[3], x.shape[2])),
        lambda x: sg.reshape(sg.flatten(x, 2) * 2, x.shape),
        lambda x: sg.layer_norm(x, x.shape[1:]),
        lambda x: sg.softmax(x, 3),
        lambda x: sg.max_unpool(*sg.max_pool(x, (2, 2), return_indices=True), (2, 2)),
        lambda x: sg.smooth_max_pool(x, (2, 2), beta=2, stride=1),
        lambda x: sg.resize(x, scales=(2, 1.5)),
        lambda x: sg.resize(x, scales=(0.75, 3), how="floor", where="asymmetric"),
    ]
    return choices[rng.integers(len(choices))]


def spatial_program(seed: int) -> Callable[[object], object]:
    rng = np.random.default_rng(seed)
    steps = [spatial_step(rng) for _ in range(rng.integers(1, 5))]

    def run(x):
        for f in steps:
            x = f(x)
        return x

    return run


def outcome(make: Callable[[], sg.Graph]) -> sg.Graph | type:
    try:
        return make()
    except SpecgradError as error:
        return type(error)


@pytest.mark.parametrize("part", PARTS)
def test_generated_graphs_with_open_spatial_sizes_are_fresh_traces(part: int) -> None:
    """Where a fresh trace is refused (a window that does not fit), so is the size; the other way round a guard may
    refuse what a trace would take, which is counted."""
    refused = compared = 0
    for seed in range(40 * part, 40 * part + 40):
        run = spatial_program(seed)
        graph = outcome(lambda run=run: sg.trace(run, ("N", 4, "H=23", "W=29")))
        if graph is ShapeError or graph is SpecgradError:
            continue
        for shape in ((1, 4, 23, 29), (2, 4, 24, 30), (1, 4, 40, 17), (3, 4, 8, 9), (1, 4, 3, 64), (1, 4, 1, 2)):
            found = outcome(lambda graph=graph, shape=shape: graph.at(x=shape))
            fresh = outcome(lambda run=run, shape=shape: sg.trace(run, shape))
            if not isinstance(fresh, sg.Graph):
                assert not isinstance(found, sg.Graph), (seed, shape)
            elif not isinstance(found, sg.Graph):
                refused += 1
            else:
                same(found, fresh)
                compared += 1
    assert compared > 100
    assert refused <= compared // 10, (refused, compared)


@pytest.mark.parametrize("seeds", slices(12, 100))
def test_jvp_and_vjp_of_open_spatial_sizes_are_those_of_fresh_traces(seeds: range) -> None:
    for seed in seeds:
        run = spatial_program(seed)
        graph = outcome(lambda run=run: sg.trace(run, ("N", 4, "H=23", "W=29")))
        if isinstance(graph, sg.Graph):
            for derivative in (sg.jvp, sg.vjp):
                found = outcome(lambda graph=graph, d=derivative: d(graph).at(x=(2, 4, 24, 30)))
                fresh = outcome(lambda run=run, d=derivative: d(sg.trace(run, (2, 4, 24, 30))))
                if isinstance(found, sg.Graph) and isinstance(fresh, sg.Graph):
                    same(found, fresh)


def test_an_open_graph_inside_an_open_trace() -> None:
    inner = sg.trace(spatial_program(3), ("N", 4, "H=23", "W=29"))
    outer = sg.trace(lambda x: sg.sum(inner(sg.relu(x))), ("M", 4, "A=30", "B=40"))
    fresh = sg.trace(lambda x: sg.sum(spatial_program(3)(sg.relu(x))), (5, 4, 23, 31))
    same(outer.at(M=5, A=23, B=31), fresh)


# --- what is refused ------------------------------------------------------------------------------------------------


def branches(x):
    return sg.relu(x) if x.shape[0] > 4 else x * 2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sg.trace(branches, ("N=8", 3)).at(N=3), "at N=3 .* traced where 4 is less than N .*test_open.py"),
        (lambda: sg.trace(lambda x: x * np.arange(x.shape[0])[:, None], ("N=5", 3)).at(N=6), "traced where N is 5"),
        (lambda: sg.trace(lambda x: x + np.ones((5, 3)), ("N=5", 3)).at(N=6), "traced where N is 5"),
        (lambda: sg.trace(lambda x: x + np.ones((5, 3)), ("N", 3)), r"shapes \(N, 3\) and \(5, 3\) do not broadcast"),
        (lambda: sg.trace(lambda x: x.reshape(5, 3) * 2, ("N=5", 3)).at(N=6), "18 cells do not fill shape"),
        (lambda: sg.trace(lambda x: x[::-1] * 2, ("N=5", 3)).at(N=6), r"traced where 3\*N is 15"),
        (lambda: sg.trace(lambda x: x * (1 / x.shape[0]), ("N=5", 3)).at(N=6), "traced where N is 5"),
        (lambda: sg.trace(lambda x: x * np.array([x.shape[0]]), ("N=5", 3)), "an open size is no entry of an array"),
        (lambda: sg.trace(lambda x: sg.max_pool(x, (3,)), ("N", "H=9")).at(H=2), r"\[W2\]: window of 3 cells"),
        (lambda: sg.trace(lambda x: x[0], ("N=5", 3)).at(N=0), "traced where|does not fit"),
        (lambda: sg.trace(sg.relu, ("N", 3)).at(M=4), "there is no input 'M'; the graph takes x"),
        (lambda: sg.trace(sg.relu, ("N", 3)).at(N=2.0), "size N must be a whole number; got 2.0"),
        (lambda: sg.trace(sg.relu, ("N", 3)).at(x=(2, 4)), "input x has size 3 in axis 1; got 4"),
        (lambda: sg.trace(sg.relu, ("N", 3)).at(x=(2,)), r"input x has 2 axes \(N, 3\); got \(2,\)"),
        (lambda: sg.trace(sg.relu, ("N", 3)).at(x=(2, 3), N=3), "size N is 3 and, by the shape of an input, 2"),
        (lambda: sg.trace(sg.relu, (2, 3)).at(x=(3, 3)), r"no size is open, so x cannot be \(3, 3\)"),
        (lambda: sg.trace(sg.add, ("N", 3), ("N=2", 3)), "size N has two defaults, 1 and 2"),
        (lambda: sg.trace(sg.relu, ("N", "3+")), "an open size is a name, or a name and a number such as H=224"),
        (
            lambda: sg.trace(sg.add, ("N", 3), ("N", 3))(np.ones((7, 3)), np.ones((8, 3))),
            "size N is 7 for x and 8 for y",
        ),
    ],
)  # fmt: skip
def test_what_depends_on_a_size_in_another_way_is_refused(make: Callable, message: str) -> None:
    with pytest.raises(SpecgradError, match=message):
        make()


def test_what_is_decided_for_all_sizes_needs_no_guard() -> None:
    n = sg.GraphBuilder().input("x", ("N", 3)).shape[0]
    assert n >= 0 and n + 1 > 0 and n != -1 and (2 * n + 5) // 2 == n + 2 and n * 6 // 3 == n + n  # noqa: PT018
    assert not n.terms[0][0][0].guards


def test_expressions_are_what_python_computes() -> None:
    rng = np.random.default_rng(0)
    for _ in range(2000):
        h = sg.GraphBuilder().input("x", ("H=9", "W=5")).shape
        values, numbers = [h[0], h[1], 3, 2], [9, 5, 3, 2]
        others = {"H": int(rng.integers(1, 60)), "W": int(rng.integers(1, 60))}
        there = [others["H"], others["W"], 3, 2]
        for _ in range(rng.integers(1, 7)):
            i, j = rng.integers(len(values), size=2)
            f = (lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * b, lambda a, b: a // 4, lambda a, b: a % 3)[
                rng.integers(5)
            ]
            for row in (values, numbers, there):
                row.append(f(row[i], row[j]))
        for value, number, other in zip(values, numbers, there, strict=True):
            assert opening.size_at(value, {"H": 9, "W": 5}) == number
            assert opening.size_at(value, others) == other


# --- the checks see what is wrong -------------------------------------------------------------------------------------


def test_the_comparison_sees_a_parameter_that_is_not_derived() -> None:
    """A planted mistake: the reshape keeps the number it had while tracing."""
    graph = sg.trace(lambda x: sg.reshape(x, (x.shape[0] * 3,)) * 2, ("N=4", 3))
    nodes = [replace(n, params={"shape": (12,)}) if n.op.name == "reshape" else n for n in graph.open.program.nodes]
    broken = replace(graph, open=opening.SymbolicProgram(replace(graph.open.program, nodes=tuple(nodes))))
    with pytest.raises(ShapeError, match="15 cells do not fill shape"):
        broken.at(N=5)


def test_the_comparison_sees_lost_guards() -> None:
    """A planted mistake: without its guards the graph of a function that branches is another one."""
    graph = sg.trace(branches, ("N=8", 3))
    blind = replace(graph, open=replace(graph.open, guards=(), known={}))
    with pytest.raises(AssertionError):
        same(blind.at(N=3), sg.trace(branches, (3, 3)))


def test_the_comparison_sees_a_shape_that_its_rule_does_not_give() -> None:
    graph = sg.trace(lambda x: sg.max_pool(x, (2,), ceil=True), ("N", "H=8"))
    program_ = graph.open.program
    h = program_.nodes[0].shape[1]
    wrong = replace(program_.nodes[1], shape=(program_.nodes[0].shape[0], h // 2))
    broken = replace(graph, open=opening.SymbolicProgram(replace(program_, nodes=(program_.nodes[0], wrong))))
    assert broken.at(H=8).nodes == graph.at(H=8).nodes
    with pytest.raises(ShapeError, match="layer max_pool has shape"):
        broken.at(H=9)


# --- tables and files -------------------------------------------------------------------------------------------------


def test_the_table_shows_names() -> None:
    text = str(sg.trace(lambda x: sg.max_pool(x, (3, 3), stride=2), ("N", 3, "H=9", 16)))
    assert "Nx3xHx16" in text
    assert "Nx3x(4)x7" in text
    assert text.endswith("multiply-adds at N=1, H=9")


@pytest.mark.parametrize("derive", [lambda g: g, sg.vjp, lambda g: sg.jvp(sg.vjp(g, ["x"]), "x")])
def test_files_keep_open_sizes(tmp_path: Path, derive: Callable) -> None:
    for seed in (2, 3, 5, 8, 11, 14, 17):
        graph = derive(sg.trace(spatial_program(seed), ("N", 4, "H=23", "W=29")))
        sg.save(graph, tmp_path / "net.json")
        loaded = sg.load(tmp_path / "net.json")
        assert loaded.nodes == graph.nodes
        assert loaded.open.defaults == {"N": 1, "H": 23, "W": 29}
        same(loaded.at(x=(2, 4, 24, 30)), graph.at(x=(2, 4, 24, 30)))
        again = pickle.loads(pickle.dumps(loaded))
        same(again.at(x=(3, 4, 40, 17)), graph.at(x=(3, 4, 40, 17)))


@pytest.mark.parametrize("seed", [3, 7, 12])
def test_files_keep_captured_arrays_that_are_repeated(tmp_path: Path, seed: int) -> None:
    run, _, x = program(seed)
    exact = sg.exact([[1, 2, 3]])
    for graph in (sg.trace(run, ("N", *x.shape[1:])), sg.trace(lambda x: x * exact[0], ("N", 3))):
        sg.save(graph, tmp_path / "net.json", force=True)
        loaded = sg.load(tmp_path / "net.json")
        for n in (1, 2, 5):
            same(loaded.at(N=n), graph.at(N=n))


def test_files_keep_guards(tmp_path: Path) -> None:
    sg.save(sg.trace(branches, ("N=8", 3)), tmp_path / "net.json")
    with pytest.raises(ShapeError, match="4 is less than N"):
        sg.load(tmp_path / "net.json").at(N=3)


def tampered(path: Path, change: Callable[[dict], object]) -> None:
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["open"]["nodes"][2].update(op="tanh"), "another one than the graph at their defaults"),
        (lambda d: d["open"]["sizes"].update(N=[4, 5]), "another one than the graph at their defaults"),
        (lambda d: d["open"]["sizes"].update(N=[4, 0]), "an open size must have a name and two numbers"),
        (lambda d: d["open"]["sizes"].clear(), "an expression must be made of"),
        (lambda d: d["open"]["nodes"][0]["shape"].insert(0, 1.5), "a size must be a whole number or an expression"),
        (lambda d: d["open"].update(steps=[["rm", None, {}]]), "'rm' is no derivative"),
        (lambda d: d["open"].update(more=1), "unknown key 'more'"),
        (lambda d: d["open"]["nodes"][1].update(args=[7]), "does not come before it"),
        (lambda d: d["open"].update(guards=[[3, "==", True, ""]]), "a guard must compare an open size"),
    ],
)
def test_a_file_that_says_two_things_is_refused(tmp_path: Path, change: Callable, message: str) -> None:
    path = tmp_path / "net.json"
    sg.save(sg.trace(lambda x: sg.relu(sg.flatten(x, 1)), ("N=4", 3, 2)), path)
    tampered(path, change)
    with pytest.raises((FileError, SpecgradError), match=message):
        sg.load(path)


def test_closed_graphs_are_written_as_before(tmp_path: Path) -> None:
    sg.save(sg.trace(sg.relu, (2, 3)), tmp_path / "net.json")
    assert "open" not in json.loads((tmp_path / "net.json").read_text())
    assert sg.trace(sg.relu, ("N", 3)).at(N=2).open is None


def test_a_size_is_no_number_in_disguise() -> None:
    """Were it an int, code in C would read it without asking, and what it made of it would be kept for all sizes."""
    assert not issubclass(SymbolicSize, int)


def test_equal_hints_do_not_make_expressions_equal() -> None:
    """H and W are both 8 while tracing; (H + 1) // 2 and (W + 1) // 2 are two sizes all the same."""
    f = lambda x: sg.reshape(sg.max_pool(x, (1, 1), stride=2), (-1, (x.shape[2] + 1) // 2, (x.shape[1] + 1) // 2)) * 2
    graph = sg.trace(f, ("N", "H=8", "W=8"))
    same(graph.at(N=3, H=5, W=12), sg.trace(f, (3, 5, 12)))
    quotients = [(n + 1) // 2 for n in graph.open.program.nodes[0].shape[1:]]
    assert sg.window.identical(quotients, quotients)
    assert not sg.window.identical(quotients[:1], quotients[1:])
    assert (quotients[0] * quotients[1]) // quotients[0] is not quotients[1]


def test_caches_do_not_hide_a_size_from_its_guards() -> None:
    """A window whose kernel is an open size is asked for again in every trace, however often it was before."""
    f = lambda x: sg.avg_pool(x, x.shape[1], rank=1, stride=x.shape[1])
    for _ in range(3):
        graph = sg.trace(f, ("N", "H=6"))
        same(graph.at(H=6), sg.trace(f, (1, 6)))
        with pytest.raises(ShapeError, match="traced where H is 6"):
            graph.at(H=8)
    with pytest.raises(TypeError, match="unhashable"):
        hash(graph.open.program.nodes[0].shape)


def test_a_node_is_left_out_only_where_a_trace_leaves_it_out() -> None:
    """A step of 2 over one cell takes that cell, and is recorded all the same."""
    f = lambda x: x[:, ::2] * 2
    graph = sg.trace(f, ("N", "H=5"))
    for h in (1, 2, 5):
        same(graph.at(H=h), sg.trace(f, (1, h)))
    assert len(graph.at(H=1)) == 3
