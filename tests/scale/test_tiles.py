"""Plans of tiles as users meet them: outputs, inputs, engines, gradients, costs, refusals."""

from __future__ import annotations

import sys
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import specgrad as sg
from pace import slower, stretched
from specgrad.interop import from_torch
from specgrad.partition.cropped_graph import crop_to_boxes
from specgrad.partition.spatial_axes import box_rules
from specgrad.scale import Plan, tiles, worker_memory
from specgrad.window.footprint import slices

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import unet
from common import each

pytestmark = pytest.mark.usefixtures("little_optimised")

SHAPES = unet.shapes(1, 2, 2, 2)


def integers(shape: Any, seed: int = 0, low: int = -1, high: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(low, high + 1, shape).astype(float)


def unet_and_parameters(size: int = 32) -> tuple[sg.Graph, Any]:
    return sg.trace(unet.net, SHAPES, (1, 1, size, size)), each(lambda name, s: integers(s, len(name)), SHAPES)


def small_and_parameters() -> tuple[sg.Graph, Any]:
    """Down and up again along one axis: JAX compiles it in seconds."""

    def net(p: Any, x: Any) -> Any:
        y = sg.max_pool(sg.conv(p["w"], p["b"], x, padding=1), (2,))
        return sg.conv_transpose(p["up"], None, y, stride=2) + x

    shapes = {"w": (2, 1, 3), "b": (2,), "up": (2, 1, 2)}
    return sg.trace(net, shapes, (1, 1, 20)), each(lambda name, s: integers(s, len(name)), shapes)


ENGINES = {"numpy": lambda a: a, "torch": torch.from_numpy, "jax": jnp.asarray}


@pytest.mark.parametrize(
    ("engine", "small"), [("numpy", True), ("numpy", False), ("torch", True), ("torch", False), ("jax", True)]
)
def test_the_loop_of_the_documentation(engine: str, small: bool) -> None:
    graph, params = small_and_parameters() if small else unet_and_parameters()
    to, size = ENGINES[engine], graph.nodes[graph.output_positions[0]].shape
    with jax.enable_x64(True):
        x, given = to(integers((1, 1, *size[2:]), 1)), each(lambda _, a: to(a), params)
        plan = tiles(graph, 9 if small else (12, 20))
        out = np.empty(size)
        for t in plan:
            out[t.box] = t(given, x[t.reads])
        expected = graph(params, np.asarray(x))
        assert type(t(given, x[t.reads])) is type(x)
    assert len(plan) == (3 if small else 6)
    assert np.array_equal(out, expected)


def test_exact_numbers() -> None:
    w = sg.exact(integers((1, 1, 3)))
    graph = sg.trace(lambda w, x: sg.avg_pool(sg.conv(w, None, x, padding=1), (2,), padding=1), w.shape, (1, 1, 9))
    graph = sg.trace(lambda p, x: graph(p["w"], x), {"w": w.shape}, (1, 1, 9))
    x = sg.exact(np.arange(9)[None, None]) / 7
    out = np.concatenate([t({"w": w}, x[t.reads]) for t in tiles(graph, 2)], axis=2)
    assert [Fraction(v) for v in out.flat] == [Fraction(v) for v in graph({"w": w}, x).flat]


def test_outputs_of_two_sizes_in_a_structure() -> None:
    def net(x: Any) -> Any:
        y = sg.max_pool(x, (2, 2), ceil=True)
        return {"full": sg.relu(x), "half": y, "class": sg.argmax(x, 1)}

    x = integers((1, 3, 13, 10), 3, -3, 3)
    graph = sg.trace(net, x.shape)
    whole = graph(x)
    out = {name: np.full(v.shape, -99, v.dtype) for name, v in whole.items()}
    for t in tiles(graph, (4, 3)):
        for name, value in t(x[t.reads]).items():
            assert (out[name][t.box[name]] == -99).all()
            out[name][t.box[name]] = value
    assert all(np.array_equal(out[name], whole[name]) for name in whole)


def test_inputs_of_two_sizes() -> None:
    """A guide at half the resolution, joined on the way up."""

    def net(x: Any, guide: Any) -> Any:
        return sg.upsample_nearest(guide, (2, 2)) + sg.conv(np.ones((1, 1, 3, 3)), None, x, padding=1)

    x, guide = integers((1, 1, 12, 16)), integers((1, 1, 6, 8), 1)
    graph = sg.trace(net, x.shape, guide.shape)
    out = np.empty(x.shape)
    plan = tiles(graph, (5, 6))
    for t in plan:
        reads_x, reads_guide = t.reads
        out[t.box] = t(x[reads_x], guide[reads_guide])
    assert np.array_equal(out, graph(x, guide))
    assert [(m.input, m.axis, m.before, m.align) for m in plan.halo.axes][2] == ("guide", 2, 0, 1)


def test_interior_tiles_share_one_graph_and_all_share_the_weights() -> None:
    graph, params = unet_and_parameters(256)
    plan = tiles(graph, 32)
    with torch.no_grad():
        given, x = each(lambda _, a: torch.from_numpy(a), params), torch.zeros(1, 1, 256, 256, dtype=torch.float64)
        for t in plan:
            t(given, x[t.reads])
    assert len(plan) == 64
    assert len(plan.kinds) == len(plan.programs.compiled) == 9  # corners, edges, and one for all 36 inside
    assert not any(list(module.parameters()) + list(module.buffers()) for module in plan.programs.compiled.values())


def test_an_output_that_is_read_on_may_stand_anywhere_in_what_is_computed() -> None:
    """The same needs, another part of them as an output: another graph."""

    def net(x: Any) -> Any:
        y = sg.relu(x)
        return sg.conv(np.ones((1, 1, 5)), None, y), y

    graph = sg.trace(net, (1, 1, 12))
    y, z = graph.output_positions[1], graph.output_positions[0]
    rules, x = box_rules(graph), integers((1, 1, 12), 3)
    cuts = []
    for first in (0, 1, 2):
        part = ((0, 1), (0, 1), (first, first + 2))
        cuts.append(crop_to_boxes(graph, rules, {z: ((0, 1), (0, 1), (0, 1)), y: part}))
        results = cuts[-1].graph()((x[..., :5],), (), tuple(graph.constants.values()))
        assert np.array_equal(results[1], np.maximum(x, 0)[slices(part)])
    assert len({cut.key for cut in cuts}) == 3


def test_constants_become_tensors_once_and_are_cut_where_they_differ() -> None:
    w, here = integers((1, 1, 3, 3)), integers((16, 16), 5)
    graph = sg.trace(lambda x: sg.conv(w, None, x, padding=1) + here, (1, 1, 16, 16))
    plan, x = tiles(graph, 4), torch.from_numpy(integers((1, 1, 16, 16), 2))
    out = torch.empty(1, 1, 16, 16, dtype=torch.float64)
    for t in plan:
        out[t.box] = t(x[t.reads])
    assert np.array_equal(out.numpy(), graph(x.numpy()))
    assert len(plan.programs._constants) == 1  # the weights; the map is cut anew for every tile


def test_images_with_channels_last() -> None:
    w = integers((2, 3, 3, 3))
    graph = sg.trace(sg.channels_last(lambda x: sg.conv(w, None, x, padding=1), rank=2), (1, 12, 10, 3))
    x = integers((1, 12, 10, 3), 4)
    plan, out = tiles(graph, (5, 4), axes=(1, 2)), np.empty((1, 12, 10, 2))
    for t in plan:
        out[t.box] = t(x[t.reads])
    assert np.array_equal(out, graph(x))
    assert [(m.axis, m.before, m.after) for m in plan.halo.axes] == [(1, 1, 1), (2, 1, 1)]
    with pytest.raises(sg.UnsupportedError, match="reads all of axis"):
        tiles(graph, 4)  # without a word they are taken for NCHW


def test_a_module_of_pytorch_in_float32() -> None:
    """Weights are constants of the graph, in the module's own format; integers, so that every sum is exact."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3, padding=1, padding_mode="zeros"),
        torch.nn.BatchNorm2d(4, eps=0.0),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2, ceil_mode=True),
        torch.nn.Conv2d(4, 4, 3, padding=2, dilation=2, groups=2),
        torch.nn.ConvTranspose2d(4, 2, 3, stride=2, padding=1),
        torch.nn.Upsample(scale_factor=2, mode="bilinear"),
    ).eval()
    for weight in net.parameters():
        weight.data = torch.randint(-2, 3, weight.shape).float()
    x = torch.randint(-3, 4, (1, 1, 31, 26)).float()
    graph = from_torch(net, x)
    with torch.no_grad():
        whole = net(x)
        out = torch.empty(whole.shape)
        for t in tiles(graph, (20, 17)):
            out[t.box] = t(x[t.reads])
    assert out.dtype == torch.float32
    assert torch.equal(out, whole)  # by the module itself


# --- gradients --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
def test_gradients_of_a_loss_over_the_whole(engine: str) -> None:
    graph, params = small_and_parameters()
    x, gy = integers((1, 1, 20), 1), integers((1, 1, 20), 2)
    _, expected, expected_x = sg.vjp(graph)(params, x, gy)
    to = ENGINES[engine]
    with jax.enable_x64(True):
        got, got_x = tiles(graph, 9).vjp(each(lambda _, a: to(a), params), to(x), to(gy))
    assert np.array_equal(np.asarray(got_x), expected_x)
    for a, b in zip(sg.tree.leaves(got), sg.tree.leaves(expected), strict=True):
        assert np.array_equal(np.asarray(a), b)


def test_gradients_of_a_tile_sum_to_the_whole() -> None:
    graph, params = unet_and_parameters(16)
    x, gy, gx = integers((1, 1, 16, 16), 1), integers((1, 2, 16, 16), 2), np.zeros((1, 1, 16, 16))
    total = each(lambda _, a: np.zeros_like(a), params)
    for t in tiles(graph, (8, 16)):
        gp, part = t.vjp(params, x[t.reads], gy[t.box])
        gx[t.reads] += part
        for a, b in zip(sg.tree.leaves(total), sg.tree.leaves(gp), strict=True):
            a += b
    _, expected, expected_x = sg.vjp(graph)(params, x, gy)
    assert np.array_equal(gx, expected_x)
    assert all(np.array_equal(a, b) for a, b in zip(sg.tree.leaves(total), sg.tree.leaves(expected), strict=True))


def test_autograd_goes_through_a_tile() -> None:
    graph, params = unet_and_parameters(16)
    given = each(lambda _, a: torch.from_numpy(a).requires_grad_(), params)
    x, gy = integers((1, 1, 16, 16), 1), integers((1, 2, 16, 16), 2)
    for t in tiles(graph, 8):
        (t(given, torch.from_numpy(x[t.reads])) * torch.from_numpy(gy[t.box])).sum().backward()
    _, expected, _ = sg.vjp(graph)(params, x, gy)
    pairs = zip(sg.tree.leaves(given), sg.tree.leaves(expected), strict=True)
    assert all(np.array_equal(a.grad.numpy(), b) for a, b in pairs)


# --- costs ------------------------------------------------------------------------------------------------------------


def test_multiply_adds_are_those_that_pytorch_counts() -> None:
    graph, params = unet_and_parameters(64)
    plan = tiles(graph, (24, 40))
    given, x = each(lambda _, a: torch.from_numpy(a), params), torch.zeros(1, 1, 64, 64, dtype=torch.float64)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        for t in plan:
            t(given, x[t.reads])
    assert counter.get_total_flops() == 2 * plan.multiply_adds
    assert (
        plan.multiply_adds
        > plan.multiply_adds_at_once
        == sum(
            node.op.multiply_adds(*(graph.nodes[a].shape for a in node.args), **node.params)
            for node in graph.nodes
            if node.op.name in ("conv", "conv_transpose")
        )
    )


def huge() -> sg.Graph:
    return sg.trace(unet.net, unet.shapes(3, 2, 16, 4), (1, 3, 100_000, 100_000))


def test_planning_ten_thousand_million_cells() -> None:
    plan, before = tiles(huge(), 1024), slower()
    start = time.process_time()
    for k in range(0, len(plan), 500):
        _ = plan[k].reads, plan[k].cut.key
    assert (time.process_time() - start) / 20 / 2 < stretched(0.010, before)
    assert len(plan) == 98 * 98
    assert plan.multiply_adds / plan.multiply_adds_at_once < 1.14
    assert sum(count for _, count in plan.kinds) == len(plan)
    assert plan[48 * 98 + 48].reads[2:] == (slice(48 * 1024 - 94, 49 * 1024 + 94),) * 2


def test_memory_chooses_the_largest_aligned_tile() -> None:
    graph = huge()
    plan = tiles(graph, memory=4 << 30)
    assert len(set(plan.size)) == 1
    assert plan.size[0] % 16 == 0
    assert plan.worker_bytes() <= 4 << 30 < tiles(graph, plan.size[0] + 16).worker_bytes()
    words = r"smallest aligned tile \(16, 16\) a worker takes [\d,]+ bytes, 280,000,000 of them before its first tile"
    with pytest.raises(sg.ParameterError, match=rf"{words}; memory=280,000,000 is less"):
        tiles(graph, memory=280_000_000)
    with pytest.raises(sg.ParameterError, match="engine must be one of numpy, torch, jax; got 'tpu'"):
        tiles(graph, memory=4 << 30, engine="tpu")


def test_no_kind_of_tile_takes_more_than_the_memory() -> None:
    graph, _ = unet_and_parameters(100)
    for more in range(200_000, 1_500_000, 80_000):
        memory = worker_memory.WORKER_BYTES["numpy"] + more
        plan = tiles(graph, memory=memory, engine="numpy")
        larger = min(plan.size[0] + 4, 100)
        assert plan.worker_bytes("numpy") <= memory
        assert plan.size[0] == 100 or tiles(graph, larger).worker_bytes("numpy") > memory


def test_a_plan_with_memory_is_the_same_every_time() -> None:
    """A job that is resumed has the tiles that it had: nothing here is measured."""
    sizes = {tiles(huge(), memory=m).size for m in [1 << 30] * 3}
    assert len(sizes) == 1


def one_conv(pad: Any, itemsize: int, engine: str) -> int:
    """What a worker takes for conv(3 -> 5 channels, 3x3) over 10x12 cells, beside itself and the weights."""
    graph = sg.trace(lambda p, x: sg.conv(p["w"], None, x, padding=pad), {"w": (5, 3, 3, 3)}, (1, 3, 10, 12))
    plan = tiles(graph, (10, 12), itemsize=itemsize)
    return plan.worker_bytes(engine) - worker_memory.WORKER_BYTES[engine] - plan.weight_bytes


def test_what_kernels_take() -> None:
    """By hand. Values: 360 read, 600 given. float32 in blocks of 16 channels of 120 cells; else 27 cells of windows."""
    values = 360 + 600 + 2 * 360
    assert one_conv(1, 4, "torch") == 4 * (values + 16 * 120 + 16 * 120)
    assert one_conv(1, 8, "torch") == 8 * (values + 27 * 120)
    assert one_conv(1, 4, "numpy") == one_conv(1, 4, "jax") == 4 * (values + 360 + 600)
    assert one_conv(((2, 0), (1, 1)), 4, "torch") == 4 * (values + 360 + 16 * 120 + 16 * 120)  # a copy, padded


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_layers_that_read_everything_are_refused_by_name() -> None:
    def net(x: Any) -> Any:
        with sg.scope("norm1"):
            return sg.group_norm(x, 1)

    graph = sg.trace(net, (1, 2, 8, 8))
    with pytest.raises(sg.UnsupportedError, match=r"norm1\.group_norm: sum reads all of axis 3 and 4 of 1x1x2x8x8"):
        tiles(graph, 4)
    plan, x = tiles(graph, 4, allow_whole=True), integers((1, 2, 8, 8), 1, -3, 3)
    out = np.concatenate([np.concatenate([plan.at(i, j)(x) for j in (0, 1)], 3) for i in (0, 1)], 2)
    assert np.array_equal(out, graph(x))


def gram(x: Any) -> Any:
    return sg.broadcast(sg.reshape(x, (1, 2, 4, 1)), (1, 2, 4, 4)) * sg.reshape(x, (1, 2, 1, 4))


def flat(x: Any) -> Any:
    return sg.flatten(x, 1)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda g: tiles(g), "give size= or memory="),
        (lambda g: tiles(sg.trace(lambda p: sg.relu(p["x"]), {"x": (1, 1, 9)}), 4), "an argument that is no structure"),
        (lambda g: tiles(g, 4, memory=10), "give size= or memory="),
        (lambda g: tiles(g, (4, 4)), r"one whole number per axis \(2,\) of the output \(1, 1, 10\); got \(4, 4\)"),
        (lambda g: tiles(g, 0), "got 0"),
        (lambda g: tiles(g, 4)[0](np.zeros((1, 1, 4))), r"x must have shape \(1, 1, 5\); got \(1, 1, 4\)"),
        (lambda g: tiles(g, 4)[0](), r"takes 1 arguments \(x\); got 0"),
        (lambda g: tiles(g, 4)[3], "there are 3 tiles; got 3"),
        (lambda g: tiles(g, 4)[0].vjp(np.zeros((1, 1, 5))), "then 1 cotangents; got 0"),
        (lambda g: tiles(sg.trace(flat, (1, 2, 4)), 4, allow_whole=True), "no axis of the output"),
        (lambda g: tiles(sg.trace(gram, (1, 2, 4)), 2, allow_whole=True), "goes along one axis of the image twice"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(call: Any, text: str) -> None:
    graph = sg.trace(lambda x: sg.max_pool(x, (3,), stride=1, padding=1), (1, 1, 10))
    with pytest.raises((sg.SpecgradError, IndexError), match=text):
        call(graph)


def test_open_sizes_have_their_defaults() -> None:
    graph = sg.trace(sg.relu, ("N", 1, "H=20"))
    assert isinstance(tiles(graph, 8), Plan)
    assert len(tiles(graph.at(H=100), 8)) == 13
