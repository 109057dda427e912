"""Operators of language models, against loops written here and against ONNX Runtime: rotary positions, attention with a
cache of past keys and values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from onnx_cases import info, runtime
from specgrad import SpecgradError
from specgrad.check import audit
from specgrad.check.verdicts.judge import judge_array
from specgrad.interop import from_onnx
from specgrad.interop.onnx.input_use import input_uses
from specgrad.rounding import Arithmetic, radius

F = np.float32
NODE = Arithmetic(execution="node")
Rng = np.random.Generator


def normal(rng: Rng, *shape: int) -> np.ndarray:
    return rng.normal(size=shape).astype(F)


def model_of(nodes: list[Any], inputs: dict[str, np.ndarray], known: dict[str, Any], outputs: list[str]) -> Any:
    """A file of these nodes; arrays of `known` stand in it."""
    declared = [info(k, a.shape, helper.np_dtype_to_tensor_dtype(a.dtype)) for k, a in inputs.items()]
    stored = [numpy_helper.from_array(np.asarray(a), k) for k, a in known.items()]
    graph = helper.make_graph(nodes, "one", declared, [info(o, None) for o in outputs], stored)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def one(op: str, given: dict[str, Any], outputs: list[str], known: set[str], **attributes: Any) -> Any:
    """A file of one node and what it is fed; None: an input that is left out."""
    names = [k if a is not None else "" for k, a in given.items()]
    node = helper.make_node(op, names, outputs, name="layer", domain="com.microsoft", **attributes)
    there = {k: a for k, a in given.items() if a is not None}
    fed = {k: a for k, a in there.items() if k not in known}
    return model_of([node], fed, {k: a for k, a in there.items() if k in known}, outputs), fed


def agrees(model: Any, fed: dict[str, np.ndarray], expected: list[np.ndarray]) -> None:
    """What is read is what the loops compute, to float64; ONNX Runtime lies in its radius, and a fault does not."""
    graph, arrays = from_onnx(model), list(fed.values())
    exact = graph(*(a.astype(float) if a.dtype == F else a for a in arrays))
    balls = radius(graph, *arrays, arithmetic=NODE).outputs
    exact, balls = (v if isinstance(v, tuple) else (v,) for v in (exact, balls))
    for ours, loops, ball, actual in zip(exact, expected, balls, runtime(model, arrays), strict=True):
        np.testing.assert_allclose(ours, loops, rtol=1e-9, atol=1e-9)
        assert judge_array("y", actual, ball).kind in ("exact", "rounding")
        assert not ball.contains(actual + F(1e-2)).any()


# --- rotary positions -------------------------------------------------------------------------------------------------


def turned(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, interleaved: bool) -> np.ndarray:
    """One head at one position, pair by pair."""
    y, x = x.astype(float), x.astype(float)
    for p, (c, s) in enumerate(zip(cos.astype(float), sin.astype(float), strict=True)):
        i, j = (2 * p, 2 * p + 1) if interleaved else (p, p + len(cos))
        y[i], y[j] = x[i] * c - x[j] * s, x[j] * c + x[i] * s
    return y


def rotated(x: np.ndarray, at: np.ndarray, cos: np.ndarray, sin: np.ndarray, interleaved: bool) -> np.ndarray:
    """All heads, at the positions `at`: (sequence,) or (batch, sequence)."""
    y, at = np.zeros(x.shape), np.broadcast_to(at, (x.shape[0], x.shape[2]))
    for b, h, s in np.ndindex(x.shape[:3]):
        y[b, h, s] = turned(x[b, h, s], cos[at[b, s]], sin[at[b, s]], interleaved)
    return y


def drawn_rotation(rng: Rng) -> tuple[Any, dict[str, np.ndarray], np.ndarray]:
    """A RotaryEmbedding of random sizes, what it is fed, and its result."""
    batch, heads, cells, rows = (int(n) for n in rng.integers((1, 1, 1, 7), (4, 5, 7, 12)))
    pairs, apart, partly, first = int(rng.integers(1, 6)), *(bool(b) for b in rng.integers(2, size=3))
    size = 2 * pairs + (2 * int(rng.integers(0, 4)) if partly else 0)
    given: dict[str, Any] = {"interleaved": int(rng.integers(2))}
    given |= {"num_heads": heads, "rotary_embedding_dim": 2 * pairs} if partly else {}
    x, cos, sin = normal(rng, batch, heads, cells, size), normal(rng, rows, pairs), normal(rng, rows, pairs)
    at = np.array([rng.integers(0, rows - cells + 1)]) if first else rng.integers(0, rows, (batch, cells))
    y = rotated(x, at[0] + np.arange(cells) if first else at, cos, sin, bool(given["interleaved"]))
    joined = lambda a: a.transpose(0, 2, 1, 3).reshape(batch, cells, heads * size)
    known = {"cos", "sin"} | ({"at"} if (first and cells > 1) or rng.random() < 0.5 else set())
    inputs = {"x": x if apart else joined(x), "at": at, "cos": cos, "sin": sin}
    model, fed = one("RotaryEmbedding", inputs, ["y"], known, **given)
    return model, fed, y if apart else joined(y)


@pytest.mark.parametrize("seed", range(12))
def test_rotary_positions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(5):
        model, fed, y = drawn_rotation(rng)
        agrees(model, fed, [y])


def test_positions_are_ids_of_the_tables() -> None:
    rng = np.random.default_rng(0)
    inputs = {
        "x": normal(rng, 1, 2, 8),
        "at": np.zeros((1, 2), int),
        "cos": normal(rng, 9, 4),
        "sin": normal(rng, 9, 4),
    }
    model, _ = one("RotaryEmbedding", inputs, ["y"], {"cos", "sin"})
    assert {k: use.rows for k, use in input_uses(model).items()} == {"x": None, "at": 9}


# --- attention with a cache -------------------------------------------------------------------------------------------


def attended(q: np.ndarray, keys: np.ndarray, values: np.ndarray, given: dict[str, Any]) -> np.ndarray:
    """Every query of every head by itself; the last query sees the last key."""
    (batch, heads, cells, size), (_, shared, total, _) = q.shape, keys.shape
    y, window = np.zeros(q.shape), given.get("local_window_size", -1)
    for b, h, s in np.ndindex(batch, heads, cells):
        end = total - cells + s + 1
        start = max(0, end - window) if window > 0 else 0
        k, v = (a[b, h // (heads // shared), start:end].astype(float) for a in (keys, values))
        x = k @ q[b, h, s].astype(float) * (given.get("scale", 0) or 1 / np.sqrt(size))
        x = given["softcap"] * np.tanh(x / given["softcap"]) if given.get("softcap") else x
        w = np.exp(x - x.max())
        y[b, h, s] = (w / w.sum()) @ v
    return y


def drawn_attention(rng: Rng) -> tuple[Any, dict[str, np.ndarray], list[np.ndarray]]:
    """A GroupQueryAttention of random sizes, what it is fed, and its results."""
    batch, shared, times, past = (int(n) for n in rng.integers((1, 1, 1, 0), (4, 3, 4, 7)))
    heads, size = shared * times, 16 * int(rng.integers(1, 3))
    cells = int(rng.integers(1, 6)) if batch == 1 or not past else 1
    total = past + cells
    rotary, packed, windowed, capped, scaled = (bool(b) for b in rng.random(5) < (0.6, 0.4, 0.4, 0.3, 0.4))
    given: dict[str, Any] = {"num_heads": heads, "kv_num_heads": shared}
    given |= {"local_window_size": int(rng.integers(1, total + 2))} if windowed else {}
    given |= {"softcap": float(rng.choice([0.5, 2, 8]))} if capped else {}
    given |= {"scale": float(F(rng.uniform(0.1, 1)))} if scaled else {}
    given |= {"do_rotary": 1, "rotary_interleaved": int(rng.integers(2))} if rotary else {}
    q, k, v = (normal(rng, batch, n, cells, size) for n in (heads, shared, shared))
    before = [normal(rng, batch, shared, past, size) for _ in range(2)]
    pairs, rows = size // 2 if rng.random() < 0.7 else 8, total + int(rng.integers(4))
    cos, sin = normal(rng, rows, pairs), normal(rng, rows, pairs)
    joined = lambda a: a.transpose(0, 2, 1, 3).reshape(batch, cells, -1)
    three = {"q": joined(q), "k": joined(k), "v": joined(v)}
    if packed:
        three = {"q": np.concatenate(list(three.values()), -1), "k": None, "v": None}
    at = np.arange(past, total)
    if rotary:
        q, k = (rotated(a, at, cos, sin, bool(given["rotary_interleaved"])) for a in (q, k))
    keys, values = (np.concatenate(pair, 2) for pair in zip(before, (k, v), strict=True))
    inputs = three | dict(zip(("past_k", "past_v"), before if past else (None, None), strict=True))
    inputs |= {"ends": np.full(batch, total - 1, np.int32), "total": np.array([total], np.int32)}
    inputs |= {"cos": cos, "sin": sin} if rotary else {}
    known = {"ends", "total", "cos", "sin"}
    model, fed = one("GroupQueryAttention", inputs, ["y", "keys", "values"], known, **given)
    return model, fed, [joined(attended(q, keys, values, given)), keys, values]


@pytest.mark.parametrize("seed", range(12))
def test_attention_with_a_cache(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(5):
        agrees(*drawn_attention(rng))


# --- what is refused --------------------------------------------------------------------------------------------------

ROTARY = {"x": (1, 2, 8), "at": np.zeros((1, 2), int), "cos": (9, 4), "sin": (9, 4)}
CACHED = {"q": (1, 1, 32), "k": (1, 1, 16), "v": (1, 1, 16), "past_k": (1, 1, 3, 16), "past_v": (1, 1, 3, 16)}
CACHED |= {"ends": np.int32([3]), "total": np.int32([4])}
BOTH = {"num_heads": 2, "kv_num_heads": 1}


def refused(op: str, given: dict[str, Any], computed: set[str], **attributes: Any) -> Any:
    """A file of one node: arrays of zeros where a shape is said, and constants but for the `computed`."""
    arrays = {k: np.zeros(a, F) if isinstance(a, tuple) else a for k, a in given.items()}
    known = {k for k in arrays if k not in {"x", "q", "k", "v", "past_k", "past_v", *computed}}
    return one(op, arrays, ["y", "keys", "values"][: 1 if op == "RotaryEmbedding" else 3], known, **attributes)[0]


def without_position(i: int, **besides: Any) -> dict[str, Any]:
    """The inputs of an attention, with one of number `i` behind them."""
    return CACHED | {f"none{n}": None for n in range(7, i)} | {f"input{i}": (1, 1)} | besides


REFUSED: dict[str, tuple[Any, str]] = {
    "a scale": (refused("RotaryEmbedding", ROTARY, set(), scale=2.0), "scale=2.0 is not supported; only 1.0"),
    "ragged batches": (
        refused("RotaryEmbedding", ROTARY, set(), is_packed_batching=1),
        "is_packed_batching=1 is not supported; only 0",
    ),
    "a first position that is computed": (
        refused("RotaryEmbedding", ROTARY | {"at": np.int64([0])}, {"at"}),
        "a first position that depends on the input is not supported; it can be fixed",
    ),
    "positions of another shape": (
        refused("RotaryEmbedding", ROTARY | {"at": np.zeros((2, 2), int)}, set()),
        "position_ids (2, 2) must have shape (1,) or (1, 2)",
    ),
    "positions outside of the tables": (
        refused("RotaryEmbedding", ROTARY | {"at": np.int64([[0, 9]])}, set()),
        "positions must lie in 0..8; got 0..9",
    ),
    "positions below 0": (
        refused("RotaryEmbedding", ROTARY | {"at": np.int64([[0, -1]])}, set()),
        "positions must lie in 0..8; got -1..0",
    ),
    "tables of two shapes": (
        refused("RotaryEmbedding", ROTARY | {"sin": (8, 4)}, set()),
        "tables of shapes (9, 4) and (8, 4) must be matrices of one shape",
    ),
    "a part of heads of which no number is said": (
        refused("RotaryEmbedding", ROTARY, set(), rotary_embedding_dim=8),
        "num_heads=0, rotary_embedding_dim=8 and tables (9, 4) do not fit input (1, 2, 8)",
    ),
    "another number of heads": (
        refused("RotaryEmbedding", ROTARY | {"x": (1, 2, 2, 8)}, set(), num_heads=4),
        "num_heads=4, rotary_embedding_dim=0 and tables (9, 4) do not fit input (1, 2, 2, 8)",
    ),
    **{
        name: (refused("GroupQueryAttention", without_position(i), set(), **BOTH), f"input {name} is not honoured")
        for i, name in ((9, "position_ids"), (10, "attention_bias"), (11, "head_sink"), (12, "k_scale"),
                        (13, "v_scale"), (14, "q_norm_weight"), (15, "k_norm_weight"))
    },
    **{
        f"{name}={value}": (
            refused("GroupQueryAttention", CACHED, set(), **BOTH, **{name: value}),
            f"{name}={value!r} is not supported; only {only}",
        )
        for name, value, only in (("causal", 0, "1"), ("smooth_softmax", 1, "-1 or 0"), ("qk_output", 1, "0"),
                                  ("sliding_window_cache", 1, "0"), ("k_quant_type", "PER_TENSOR", "'NONE'"))
    },
    "a window of no key": (
        refused("GroupQueryAttention", CACHED, set(), **BOTH, local_window_size=0),
        "local_window_size=0 must be -1 or positive",
    ),
    "a cap below 0": (
        refused("GroupQueryAttention", CACHED, set(), **BOTH, softcap=-1.0),
        "softcap=-1.0 must not be negative",
    ),
    "keys that are padded": (
        refused("GroupQueryAttention", CACHED | {"ends": np.int32([2])}, set(), **BOTH),
        "seqlens_k=[2] is not total_sequence_length - 1 = 3 everywhere: keys are padded",
    ),
    "a buffer longer than the past": (
        refused("GroupQueryAttention", CACHED | dict.fromkeys(("past_k", "past_v"), (1, 1, 8, 16)), set(), **BOTH),
        "past_key (1, 1, 8, 16) and past_value (1, 1, 8, 16) must have shape (1, 1, 3, 16): longer buffers are not",
    ),
    "lengths that are computed": (
        refused("GroupQueryAttention", CACHED, {"ends"}, **BOTH),
        "seqlens_k must be a constant; it depends on the input",
    ),
    "heads that do not fit": (
        refused("GroupQueryAttention", CACHED, set(), num_heads=3, kv_num_heads=2),
        "query (1, 1, 32) does not fit 3 heads, 2 of keys and values",
    ),
    "keys of another size": (
        refused("GroupQueryAttention", CACHED | {"k": (1, 1, 8)}, set(), **BOTH),
        "key (1, 1, 8) and value (1, 1, 16) must have shape (1, 1, 16)",
    ),
    "rotary positions without tables": (
        refused("GroupQueryAttention", CACHED, set(), **BOTH, do_rotary=1),
        "input 7 is missing",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused_by_name(case: str) -> None:
    model, message = REFUSED[case]
    with pytest.raises(SpecgradError) as caught:
        from_onnx(model)
    assert message in str(caught.value)


# --- one step of decoding ---------------------------------------------------------------------------------------------

D, PAST, HEADS, SHARED, SIZE = 24, 5, 4, 2, 16
STEP = {"x": (1, 1, D), "past_k": (1, SHARED, PAST, SIZE), "past_v": (1, SHARED, PAST, SIZE)}
ENDS = ["y", "keys", "values"]


def weights(rng: Rng) -> dict[str, Any]:
    """Weights of a layer of attention, and the tables of its positions."""
    width = (HEADS + 2 * SHARED) * SIZE
    angles = np.arange(12)[:, None] * 100.0 ** (-np.arange(SIZE // 2) / (SIZE // 2))
    tables = {"cos": np.cos(angles).astype(F), "sin": np.sin(angles).astype(F)}
    return {"w": normal(rng, D, width) / 5, "o": normal(rng, HEADS * SIZE, D) / 8} | tables


def fused_step(**changed: Any) -> list[Any]:
    """Attention as one operator, behind and before a product."""
    given = {"num_heads": HEADS, "kv_num_heads": SHARED, "do_rotary": 1} | changed
    names = ["qkv", "", "", "past_k", "past_v", "ends", "total", "cos", "sin"]
    return [
        helper.make_node("MatMul", ["x", "w"], ["qkv"], name="qkv"),
        helper.make_node(
            "GroupQueryAttention", names, ["a", "keys", "values"], name="attention", domain="com.microsoft", **given
        ),
        helper.make_node("MatMul", ["a", "o"], ["y"], name="out"),
    ]


def counted_step() -> list[Any]:
    """The lengths as exporters compute them: from a mask of all keys."""
    return [
        helper.make_node("ReduceSum", ["mask", "last"], ["seen"], keepdims=0),
        helper.make_node("Sub", ["seen", "one"], ["less"]),
        helper.make_node("Cast", ["less"], ["ends"], to=onnx.TensorProto.INT32),
        helper.make_node("Shape", ["mask"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["long"]),
        helper.make_node("Cast", ["long"], ["total"], to=onnx.TensorProto.INT32),
        *fused_step(),
    ]


def plain_step() -> list[Any]:
    """The same by nodes of ONNX and RotaryEmbedding: past keys before the new ones, each for two heads."""
    make, nodes = helper.make_node, [helper.make_node("MatMul", ["x", "w"], ["qkv"], name="qkv")]
    nodes.append(make("Split", ["qkv", "widths"], ["q", "k", "v"], axis=2))
    for name, heads in (("q", HEADS), ("k", SHARED), ("v", SHARED)):
        nodes.append(make("Reshape", [name, f"{heads} heads"], [f"{name}1"]))
        nodes.append(make("Transpose", [f"{name}1"], [f"{name}2"], perm=[0, 2, 1, 3]))
    for name in "qk":
        nodes.append(make("RotaryEmbedding", [f"{name}2", "at", "cos", "sin"], [f"{name}3"], domain="com.microsoft"))
    for name, new, kept in (("past_k", "k3", "keys"), ("past_v", "v2", "values")):
        nodes.append(make("Concat", [name, new], [kept], axis=2))
        nodes.append(make("Unsqueeze", [kept, "two"], [f"{kept}1"]))
        nodes.append(make("Expand", [f"{kept}1", "spread"], [f"{kept}2"]))
        nodes.append(make("Reshape", [f"{kept}2", "together"], [f"{kept}3"]))
    return [
        *nodes,
        make("Transpose", ["keys3"], ["turned"], perm=[0, 1, 3, 2]),
        make("MatMul", ["q3", "turned"], ["products"]),
        make("Mul", ["products", "scale"], ["scaled"]),
        make("Softmax", ["scaled"], ["shares"]),
        make("MatMul", ["shares", "values3"], ["means"]),
        make("Transpose", ["means"], ["joined"], perm=[0, 2, 1, 3]),
        make("Reshape", ["joined", "flat"], ["a"]),
        make("MatMul", ["a", "o"], ["y"], name="out"),
    ]


SIZES: dict[str, Any] = {
    "widths": [HEADS * SIZE, SHARED * SIZE, SHARED * SIZE], f"{HEADS} heads": [1, 1, HEADS, SIZE], "two": [2],
    f"{SHARED} heads": [1, 1, SHARED, SIZE], "spread": [1, SHARED, HEADS // SHARED, PAST + 1, SIZE],
    "together": [1, HEADS, PAST + 1, SIZE], "flat": [1, 1, HEADS * SIZE], "at": [[PAST]],
}  # fmt: skip


def step(form: str) -> tuple[Any, dict[str, np.ndarray]]:
    """A file of one step of decoding, and what it is fed."""
    rng = np.random.default_rng(0)
    known, inputs = weights(rng), {k: normal(rng, *shape) for k, shape in STEP.items()}
    lengths = {"ends": np.int32([PAST]), "total": np.int32([PAST + 1])}
    if form == "plain":
        stored = known | {k: np.int64(v) for k, v in SIZES.items()} | {"scale": F(SIZE**-0.5)}
        return model_of(plain_step(), inputs, stored, ENDS), inputs
    if form == "counted":
        stored, inputs = known | {"last": np.int64([1]), "one": np.int64(1)}, inputs | {"mask": np.ones((1, 6), int)}
        return model_of(counted_step(), inputs, stored, ENDS), inputs
    if form == "given":
        return model_of(fused_step(), inputs | lengths, known, ENDS), inputs | lengths
    return model_of(fused_step(), inputs, known | lengths, ENDS), inputs


@pytest.mark.parametrize("form", ["known", "given", "counted", "plain"])
def test_a_step_of_decoding(form: str) -> None:
    """Past keys and values are inputs, present ones outputs; inputs that count keys are read at their values."""
    model, inputs = step(form)
    done = audit(model, "onnxruntime", list(inputs.values()))
    assert done.verdict == "rounding"
    assert done.coverage.is_whole
    assert {layer.verdict.kind for layer in done.layers} <= {"exact", "rounding"}


def test_lengths_that_a_mask_decides() -> None:
    """They are known where the mask is fixed; an audit fixes it."""
    model, inputs = step("counted")
    with pytest.raises(SpecgradError, match="seqlens_k must be a constant"):
        from_onnx(model)
    mask = inputs.pop("mask")
    graph, arrays = from_onnx(model, fixed={"mask": mask}), list(inputs.values())
    plain = from_onnx(step("plain")[0])
    exact = [[a.astype(float) for a in g(*(b.astype(float) for b in arrays))] for g in (graph, plain)]
    for ours, loops in zip(*exact, strict=True):
        np.testing.assert_allclose(ours, loops, rtol=1e-6)
    for ball, actual in zip(radius(graph, *arrays).outputs, runtime(model, [*arrays, mask]), strict=True):
        assert ball.contains(actual).all()


FAULTS: dict[str, Callable[[Any], None]] = {
    "another scale": lambda file: file.graph.node[1].attribute.append(helper.make_attribute("scale", 0.2501)),
    "a window": lambda file: file.graph.node[1].attribute.append(helper.make_attribute("local_window_size", PAST)),
    "neighbouring pairs": lambda file: file.graph.node[1].attribute.append(
        helper.make_attribute("rotary_interleaved", 1)
    ),
    "keys and values swapped": lambda file: file.graph.node[1].input.__setitem__(3, "past_v"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_outside(fault: str) -> None:
    """The file that runs is another than the one that was read."""
    model, inputs = step("known")
    graph, arrays = from_onnx(model), list(inputs.values())
    FAULTS[fault](model)
    y = runtime(model, arrays)[0]
    assert not radius(graph, *arrays, arithmetic=NODE).outputs[0].contains(y).all()
