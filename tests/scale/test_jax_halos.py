"""compile(graph, "jax", mesh=, split=): values and gradients of cut images are those of whole ones, on integers.

The devices must be asked for before JAX starts, so this file runs itself in a process of its own, with 8 of them.
Expected values come from PyTorch and from NumPy, on one device.
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from specgrad.partition.cropped_graph import crop_to_boxes
from specgrad.partition.halo_exchange import AxisExchange
from specgrad.partition.spatial_axes import box_rules
from specgrad.window.axis_maps import Windowed
from specgrad.window.footprint import slices, whole

DEVICES = 8
Job = Callable[[], dict[str, Any]]
JOBS: dict[str, Job] = {}


def job(f: Job) -> Job:
    JOBS[f.__name__] = f
    return f


def integers(shape: Any, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-2, 3, shape).astype(float)


def equal(got: Any, want: Any) -> bool:
    import jax

    pairs = zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True)
    return all(np.array_equal(np.asarray(a), b) for a, b in pairs)


def mesh_of(explicit: bool = False, **axes: int) -> Any:
    import jax
    from jax.sharding import AxisType

    kind = AxisType.Explicit if explicit else AxisType.Auto
    devices = jax.devices()[: math.prod(axes.values())]
    return jax.make_mesh(tuple(axes.values()), tuple(axes), axis_types=(kind,) * len(axes), devices=devices)


def bytes_permuted(compiled: Any) -> int:
    """Of all collective permutations of a program: the bytes of each, once per pair of devices."""
    total = 0
    pattern = r"= (f64)\[([0-9,]*)\]\S* collective-permute\(.*source_target_pairs=\{((?:\{\d+,\d+\},?)*)\}"
    text = compiled.as_text()
    found = re.findall(pattern, text)
    assert len(found) == len(re.findall(r" collective-permute(?:-start)?\(", text))
    for _, shape, pairs in found:
        total += 8 * math.prod(map(int, shape.split(","))) * pairs.count("{")
    return total


# --- networks ---------------------------------------------------------------------------------------------------------

U_SHAPES = {"a": (2, 1, 3, 3), "deep": (2, 2, 3, 3), "up": (2, 2, 2, 2), "head": (1, 4, 1, 1)}


def u_net_loss(p: Any, x: Any, target: Any) -> Any:
    y = sg.relu(sg.conv(p["a"], None, x, padding=1))
    z = sg.conv(p["deep"], None, sg.max_pool(y, (2, 2)), padding=1)
    z = sg.concat([sg.conv_transpose(p["up"], None, z, stride=2), y], 1)
    d = sg.conv(p["head"], None, z) - target
    return sg.sum(d * d)


def line_net(p: Any, x: Any) -> Any:
    """Uneven parts, a constant, a maximum at the border, a sum over everything that comes back to each cell."""
    y = sg.max_pool(sg.relu(sg.conv(p["w"], p["b"], x, padding=1)) + np.arange(21.0), (3,), stride=2, padding=1)
    return y + sg.sum(y, (2,), keepdims=True), sg.sum(y * y)


def line_case() -> tuple[sg.Graph, Any, np.ndarray]:
    shapes = {"w": (2, 1, 3), "b": (2,)}
    graph = sg.trace(line_net, shapes, (1, 1, 21))
    return graph, {name: integers(s, len(name)) for name, s in shapes.items()}, integers((1, 1, 21), 5)


# --- what runs on 8 devices -------------------------------------------------------------------------------------------


@job
def training_step_of_a_u_net_on_data_x_rows() -> dict[str, Any]:
    """Explicit axes, as jax.make_mesh gives by default: gradient, the step, and what the compiled program sends."""
    from jax.sharding import PartitionSpec

    graph = sg.trace(u_net_loss, U_SHAPES, (2, 1, 16, 8), (2, 1, 16, 8))
    params = {name: integers(s, len(name)) for name, s in U_SHAPES.items()}
    x, target = integers((2, 1, 16, 8), 1), integers((2, 1, 16, 8), 2)
    step = sg.compile(
        graph, "jax", "grad", wrt="p", mesh=mesh_of(True, data=2, rows=2), split=PartitionSpec("data", None, "rows")
    )
    got, want = step(params, x, target), sg.grad(graph, "p")(params, x, target)
    moved = {name: params[name] - 4 * np.asarray(got[name]) for name in params}
    rows = 2 * 1 * 2  # two images' halves of the batch, one border, two ways
    by_hand = rows * (1 * 8 + 2 * 4)
    sent = bytes_permuted(step.lower(params, x, target).compile())
    return {
        "gradient": equal(got, want),
        "step": equal(moved, {name: params[name] - 4 * want[name] for name in params}),
        "planned as by hand": step.cells_moved == by_hand,
        "sent as planned": sent == 8 * (by_hand + rows * 2 * 4),  # nobody asks for the gradient of x
    }


@job
def modes_and_uneven_parts() -> dict[str, Any]:
    graph, params, x = line_case()
    options = {"mesh": mesh_of(True, rows=4), "split": (None, None, "rows")}
    gy, gs = integers((1, 2, 11), 7), integers((), 8)
    pulled = sg.compile(graph, "jax", "vjp", **options)(params, x, gy, gs)
    pushed = sg.compile(graph, "jax", "jvp", wrt="x", **options)(params, x, integers(x.shape, 9))
    return {
        "vjp": equal(pulled, sg.vjp(graph)(params, x, gy, gs)),
        "jvp": equal(pushed, sg.jvp(graph, "x")(params, x, integers(x.shape, 9))),
    }


@job
def sent_forward() -> dict[str, Any]:
    """A maximum at the border, parts of several lengths: the program sends what the plan counts, not a byte more."""
    graph = sg.trace(lambda x: sg.max_pool(sg.max_pool(x, (3,), padding=1, stride=1), (4,), stride=3), (1, 1, 37))
    f = sg.compile(graph, "jax", mesh=mesh_of(rows=8), split=(None, None, "rows"))
    x = integers((1, 1, 37))
    return {"values": equal(f(x), graph(x)), "sent": bytes_permuted(f.lower(x).compile()) == 8 * f.cells_moved > 0}


@job
def rows_and_columns() -> dict[str, Any]:
    """Two axes of the image at once: corners come by way of a neighbour."""
    graph = sg.trace(
        lambda p, x: sg.max_pool(sg.conv(p["w"], None, x, padding=1), (3, 3), stride=(2, 1), padding=1),
        {"w": (1, 1, 3, 3)},
        (1, 1, 9, 6),
    )
    p, x, gy = {"w": integers((1, 1, 3, 3))}, integers((1, 1, 9, 6), 1), integers((1, 1, 5, 6), 2)
    options = {"mesh": mesh_of(True, rows=2, columns=2), "split": (None, None, "rows", "columns")}
    return {"vjp": equal(sg.compile(graph, "jax", "vjp", **options)(p, x, gy), sg.vjp(graph)(p, x, gy))}


@job
def where_automatic_sharding_is_wrong() -> dict[str, Any]:
    """docs/findings/sharding/xla-conv-weight-gradient.py, and the plainest of what xla-hunt.py finds."""
    cases = {"N=24": (24, 4, 3, 2, 5, 6), "N=8": (8, 3, 2, 1, 2, 1)}
    answers = {}
    for name, (n, k, s, d, lo, hi) in cases.items():
        graph = sg.trace(
            lambda p, x, s=s, d=d, lo=lo, hi=hi: sg.conv(p["w"], None, x, stride=s, dilation=d, padding=((lo, hi),)),
            {"w": (1, 1, k)},
            (1, 1, n),
        )
        (outs,) = graph.nodes[graph.output_positions[0]].shape[2:]
        x, gy = np.arange(1.0, n + 1), np.arange(1.0, outs + 1)
        padded = np.pad(x, (lo, hi))
        by_definition = [sum(gy[o] * padded[s * o + d * t] for o in range(outs)) for t in range(k)]
        f = sg.compile(graph, "jax", "vjp", wrt="p", mesh=mesh_of(rows=8), split=(None, None, "rows"))
        _, got = f({"w": np.ones((1, 1, k))}, x[None, None], gy[None, None])
        answers[name] = np.asarray(got["w"]).ravel().tolist() == by_definition
    return answers


@job
def planted() -> dict[str, Any]:
    """Mistakes, each of which makes values or gradients wrong."""
    graph = sg.trace(lambda p, x: sg.conv(p["w"], None, sg.relu(x), padding=1), {"w": (1, 1, 3)}, (1, 1, 8))
    w, x = {"w": np.array([[[1.0, 2.0, 4.0]]])}, np.arange(1.0, 9.0)[None, None]
    want = sg.vjp(graph)(w, x, x)

    def right() -> bool:
        return equal(sg.compile(graph, "jax", "vjp", mesh=mesh_of(rows=2), split=(None, None, "rows"))(w, x, x), want)

    answers = {"right": right()}
    for title, kind, name, wrong in MISTAKES:
        before = getattr(kind, name)
        setattr(kind, name, wrong(before))
        answers[title] = not right()
        setattr(kind, name, before)
    return answers


def neighbour_off_by_one(pieces: Any) -> Any:
    def wrong(self: AxisExchange) -> Any:
        return (
            p._replace(starts={s: min(1, i + 1) if i == 0 else i - 1 for s, i in p.starts.items()})
            for p in pieces(self)
        )

    return wrong


def one_cell_less(open_: Any) -> Any:
    def wrong(self: Windowed, o: int, p: int) -> Any:
        return open_(self, o, p)._replace(need=(open_(self, o, p).need[0] - 1, open_(self, o, p).need[1] - 1))

    return wrong


MISTAKES = [
    ("the neighbour's second cell", AxisExchange, "_pieces", neighbour_off_by_one),
    ("windows one cell early", Windowed, "open", one_cell_less),
]


def with_weights_as_inputs(graph: sg.Graph) -> tuple[sg.Graph, tuple[np.ndarray, ...]]:
    """The network of its constants and of x; and those constants."""
    cut = crop_to_boxes(graph, box_rules(graph), {p: whole(graph.nodes[p].shape) for p in graph.output_positions})
    inner, (data,), constants = cut.graph(), graph.input_positions, cut.inputs[2]
    weights = (
        *(graph.constants[p][slices(cut.needs[p])] for p in constants),
        np.zeros(1),
    )  # the last: there may be none
    outer = lambda weights, x: inner((x[slices(cut.needs[data])],), (), weights[:-1])
    return sg.trace(outer, weights, graph.nodes[data].shape), weights


def in_branches(jaxpr: Any, inside: bool = False) -> list[str]:
    """What devices do together in branches of a switch, where they would wait for others who are not there."""
    together = ("psum", "ppermute", "all_gather", "all_reduce")
    names = [str(e.primitive) for e in jaxpr.eqns if inside and str(e.primitive).startswith(together)]
    for e in jaxpr.eqns:
        for value in e.params.values():
            for inner in value if isinstance(value, tuple | list) else (value,):
                inner = getattr(inner, "jaxpr", inner)
                if hasattr(inner, "eqns"):
                    names += in_branches(inner, inside or str(e.primitive) == "cond")
    return names


def random_network(seed: int) -> dict[str, Any]:
    """Values and the gradients of x and of all weights for random cotangents, on 8 devices and by PyTorch on one."""
    import jax
    import torch
    from jax.sharding import PartitionSpec

    from tiled_networks import EXACT, network

    torch.set_num_threads(1)
    rng = Random(seed)
    graph, weights = with_weights_as_inputs(network(rng))
    shape = graph.nodes[graph.input_positions[-1]].shape
    x = np.array([rng.randint(-3, 3) for _ in range(math.prod(shape))], float).reshape(shape)
    outs = [graph.nodes[p].shape for p in graph.output_positions]
    gys = [np.random.default_rng(seed).integers(-1, 2, s).astype(float) for s in outs]
    given = (weights, x, *gys)
    single = sg.compile(sg.vjp(graph), "torch")
    of_tensors = lambda f: jax.tree.leaves(single(*jax.tree.map(lambda a: torch.from_numpy(np.array(f(a))), given)))
    want = [v.numpy() for v in of_tensors(lambda a: a)]
    if not all(float(v.abs().max()) < EXACT for v in of_tensors(abs) if v.numel()):
        return {"left out": "large"}
    f = sg.compile(graph, "jax", mesh=mesh_of(rows=DEVICES), split=PartitionSpec(None, None, "rows"))

    def both(weights: Any, x: Any, *gys: Any) -> Any:
        y, pull = jax.vjp(f, weights, x)
        return y, pull(gys)

    traced = jax.jit(both).trace(*given)
    got = [np.asarray(v) for v in jax.tree.leaves(traced.lower().compile()(*given))]
    thirds = any(node.op.name in ("avg_pool", "div", "power") for node in graph.nodes)  # of a cotangent are no floats
    far = [float(abs(a - b).max(initial=0)) for a, b in zip(got, want, strict=True)]
    allowed = [1e-12 * float(abs(b).max(initial=0)) if thirds else 0.0 for b in want]
    return {
        "values": not any(far[: len(outs)]),
        "gradients": all(a <= b for a, b in zip(far, allowed, strict=True)),
        "together": not in_branches(traced.jaxpr.jaxpr),
        "bit for bit": not any(far),
    }


# --- tests ------------------------------------------------------------------------------------------------------------


def run(*words: str, timeout: int) -> dict[str, dict[str, Any]]:
    """The answers of the named jobs, and of networks by number, from a process with 8 devices."""
    env = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={DEVICES} --xla_backend_optimization_level=0",
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]),
    }
    command = [sys.executable, __file__, *words]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=timeout)
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(line) for line in done.stdout.splitlines())


needs_jax = pytest.mark.skipif(find_spec("jax") is None, reason="needs jax")


@pytest.fixture(scope="module")
def answers() -> dict[str, dict[str, Any]]:
    return run(*JOBS, "2", "10", "16", timeout=900)


@needs_jax
@pytest.mark.parametrize("name", [*JOBS, "2", "10", "16"])
def test_on_devices(answers: dict[str, dict[str, Any]], name: str) -> None:
    assert all(answers[name].values()), answers[name]


@needs_jax
@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_a_hundred_random_networks(part: int) -> None:
    seeds = [str(seed) for seed in range(100 + 12 * part, 112 + 12 * part)]
    found = [answer for answer in run(*seeds, timeout=3600).values() if "left out" not in answer]
    assert len(found) >= 10
    assert all(answer["values"] and answer["gradients"] and answer["together"] for answer in found), found
    assert sum(answer["bit for bit"] for answer in found) > len(found) / 2


@needs_jax
@pytest.mark.slow
@pytest.mark.parametrize("script", ["xla-conv-weight-gradient.py", "xla-max-pool-gradient.py", "xla-no-program.py"])
def test_the_page_of_findings_shows_what_scripts_print(script: str) -> None:
    import jax

    page = Path(__file__).parents[2] / "docs/findings/sharding.md"
    if f"jax {jax.__version__}," not in page.read_text():
        pytest.skip("the page is about another version of jax")
    command = [sys.executable, str(page.parent / "sharding" / script)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600).stdout
    assert "".join(f"    {line}\n" for line in printed.splitlines()) in page.read_text()


@needs_jax
def test_a_sum_in_a_branch_is_seen() -> None:
    import jax
    from jax import lax
    from jax.sharding import PartitionSpec

    def f(x: Any) -> Any:
        one, other = lambda x: lax.pcast(lax.psum(x, "rows"), "rows", to="varying"), lambda x: x
        return lax.switch(lax.axis_index("rows"), [one, other], x)

    spec = {"in_specs": PartitionSpec("rows"), "out_specs": PartitionSpec("rows")}
    mapped = jax.shard_map(f, mesh=jax.make_mesh((1,), ("rows",), axis_types=(jax.sharding.AxisType.Auto,)), **spec)
    assert in_branches(jax.make_jaxpr(mapped)(np.ones(2)).jaxpr)


REFUSED = {
    "softmax: amax goes over an axis that rows cuts, and is no sum": (lambda x: sg.softmax(x, 1), (None, "rows")),
    "cumsum reads all of axis 1 of 2x8, which rows cuts": (lambda x: sg.cumsum(x, 1), (None, "rows")),
    "goes along the cut axis twice": (lambda x: sg.contract(x, x, "ab,cb->ac"), ("rows",)),
    "split must name axes of the mesh": (sg.relu, (None, "columns")),
    "split has 3 places, the first data input 2 axes": (sg.relu, (None, None, "rows")),
}


@needs_jax
@pytest.mark.parametrize("reason", REFUSED)
def test_refusals(reason: str) -> None:
    import jax

    f, split = REFUSED[reason]
    with pytest.raises(sg.SpecgradError, match=reason):
        sg.compile(sg.trace(f, (2, 8)), "jax", mesh=jax.make_mesh((1,), ("rows",)), split=split)


@needs_jax
def test_options_that_do_not_fit() -> None:
    import jax

    graph, mesh = sg.trace(sg.relu, (2, 8)), jax.make_mesh((1,), ("rows",))
    for engine, options in {"torch": {"mesh": mesh, "split": ("rows",)}, "jax": {"split": ("rows",)}}.items():
        with pytest.raises(sg.ParameterError, match="mesh= and split= go together"):
            sg.compile(graph, engine, **options)
    for options in ({"mesh": 8, "split": ("rows",)}, {"mesh": mesh}):
        with pytest.raises(sg.ParameterError, match="must"):
            sg.compile(graph, "jax", **options)


if __name__ == "__main__":
    import jax

    jax.config.update("jax_enable_x64", True)
    for word in sys.argv[1:]:
        print(json.dumps([word, JOBS[word]() if word in JOBS else random_network(int(word))]), flush=True)
