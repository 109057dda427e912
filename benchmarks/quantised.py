"""Quantised convolutions on ONNX Runtime: sums exactly, requantised cells by their sets.

    python benchmarks/quantised.py | tee benchmarks/quantised.txt                 # about two minutes on 2 cores
    python benchmarks/quantised.py --quick

Layers of ResNet, ResNeXt and MobileNet at their sizes and smaller ones with odd windows; bytes of every type that the
runtime takes, drawn over the whole range, at its ends, and narrow; one scale or one per channel. Per layer: ConvInteger
(int32 sums), QLinearConv (requantised), and DequantizeLinear, Conv, QuantizeLinear, which the runtime merges. The last
part is the convolution of a finding: 8-bit and 7-bit weights, with and without optimisations, and as pairs of products
added in 16 bits would have it.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from onnx import helper, numpy_helper

from specgrad.check.runtimes import runtime
from specgrad.check.verdicts import saturation
from specgrad.check.verdicts.judge import judge_array
from specgrad.check.verdicts.run_case import arithmetic_of, fused_arithmetic_of
from specgrad.interop import from_onnx
from specgrad.rounding import radius

LAYERS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "ResNet 3x3": ((1, 64, 28, 28), (64, 64, 3, 3), {"pads": [1] * 4}),
    "ResNet 3x3 s2": ((1, 64, 28, 28), (64, 64, 3, 3), {"pads": [1] * 4, "strides": [2, 2]}),
    "ResNet stem 7x7 s2": ((1, 3, 56, 56), (32, 3, 7, 7), {"pads": [3] * 4, "strides": [2, 2]}),
    "ResNet 1x1": ((1, 128, 14, 14), (64, 128, 1, 1), {}),
    "ResNeXt 3x3, 8 groups": ((1, 64, 14, 14), (64, 8, 3, 3), {"pads": [1] * 4, "group": 8}),
    "MobileNet depthwise": ((1, 64, 28, 28), (64, 1, 3, 3), {"pads": [1] * 4, "group": 64}),
    "dilated 5x3, uneven pads": (
        (2, 6, 17, 13),
        (10, 3, 5, 3),
        {"pads": [1, 0, 2, 3], "dilations": [2, 1], "group": 2},
    ),
    "1-D": ((2, 5, 60), (7, 5, 4), {"pads": [2, 1]}),
}
PAIRS = {"u8 x s8": (np.uint8, np.int8), "s8 x s8": (np.int8, np.int8), "u8 x u8": (np.uint8, np.uint8)}
DATA = ("whole range", "ends", "narrow")


def drawn(rng: np.random.Generator, kind: str, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    if kind == "ends":
        return rng.choice([low, high], shape).astype(dtype)
    middle, reach = (low + high) // 2, 16 if kind == "narrow" else 128
    return rng.integers(max(low, middle - reach), min(high, middle + reach) + 1, shape).astype(dtype)


def file(nodes: list[Any], x: np.ndarray, outputs: list[str], stored: dict[str, np.ndarray]) -> bytes:
    given = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
    graph = helper.make_graph(
        nodes,
        "layer",
        [given],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in stored.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def ran(model: bytes, x: np.ndarray, optimised: bool = True) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return list(session.run(None, {"x": x}))


class Tally:
    """Cells by what they are; sets of more than one number apart."""

    def __init__(self) -> None:
        self.cells: Counter[str] = Counter()
        self.open: Counter[str] = Counter()
        self.alarms: list[str] = []

    def judge(self, what: str, name: str, model: bytes, x: np.ndarray, merged: bool = False) -> None:
        graph, arithmetic = (
            from_onnx(model),
            (fused_arithmetic_of if merged else arithmetic_of)(runtime("onnxruntime")),
        )
        (got,) = ran(model, x)
        found = radius(graph, x.astype(float), arithmetic=arithmetic, backend="torch", formats=graph.formats)
        verdict = judge_array("y", got, found.outputs)
        self.cells[what] += got.size
        self.open[what] += int(np.count_nonzero(found.outputs.low != found.outputs.high))
        if verdict.kind not in ("exact", "rounding"):
            self.alarms.append(f"{what}, {name}: {verdict}")


def layer(tally: Tally, name: str, types: str, kind: str, seed: int) -> None:
    """One layer, three ways."""
    (x_shape, w_shape, attributes), (a, b) = LAYERS[name], PAIRS[types]
    rng, channels = np.random.default_rng(seed), w_shape[0]
    x, w = drawn(rng, kind, x_shape, a), drawn(rng, kind, w_shape, b)
    per_channel = seed % 2 == 1
    ws = rng.uniform(0.001, 0.02, channels if per_channel else ()).astype(np.float32)
    zeros = {"xz": np.asarray(rng.integers(np.iinfo(a).min, np.iinfo(a).max + 1), a)}
    wz = 0 if b is np.int8 else int(rng.integers(0, 256))
    zeros |= {"wz": np.full(channels if per_channel else (), wz, b), "yz": np.asarray(rng.integers(0, 100), a)}
    attributes = {"kernel_shape": list(w_shape[2:]), **attributes}
    title = f"{name}, {types}, {kind}, seed {seed}"
    summed = helper.make_node("ConvInteger", ["x", "w", "xz", "z"], ["y"], **attributes)
    tally.judge("sums", title, file([summed], x, ["y"], {**zeros, "w": w, "z": np.asarray(wz, b)}), x)
    spread = 128 * 128 * float(ws.mean()) * 0.03 * np.sqrt(np.prod(w_shape[1:])) / 60
    scales = {"xs": np.float32(0.03), "ws": ws, "ys": np.float32(spread)}
    bias = rng.integers(-20_000, 20_000, channels).astype(np.int32)
    reads = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"]
    stored = {**zeros, **scales, "w": w, "b": bias}
    requantised = helper.make_node("QLinearConv", reads, ["y"], **attributes)
    tally.judge("requantised", title, file([requantised], x, ["y"], stored), x)
    stored |= {"bs": np.float32(0.03) * ws, "bz": np.zeros(ws.shape, np.int32)}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["xd"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=0),
        helper.make_node("DequantizeLinear", ["b", "bs", "bz"], ["bd"], axis=0),
        helper.make_node("Conv", ["xd", "wd", "bd"], ["c"], **attributes),
        helper.make_node("QuantizeLinear", ["c", "ys", "yz"], ["y"]),
    ]
    tally.judge("merged", title, file(nodes, x, ["y"], stored), x, merged=True)


def finding(bits: int) -> str:
    """One QDQ convolution of 524,288 cells: optimised against not, and against sums in 16 bits."""
    rng, most = np.random.default_rng(0), 2 ** (bits - 1)
    x = rng.integers(0, 256, (1, 16, 128, 128)).astype(np.uint8)
    w = rng.integers(-most, most, (32, 16, 3, 3)).astype(np.int8)
    stored = {"xs": np.float32(6 / 255), "xz": np.uint8(128), "w": w, "ws": np.float32(0.01), "wz": np.int8(0)}
    stored |= {"ys": np.float32(0.4 * most / 128), "yz": np.uint8(128)}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["xd"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"]),
        helper.make_node("Conv", ["xd", "wd"], ["c"], kernel_shape=[3, 3], pads=[1] * 4),
        helper.make_node("QuantizeLinear", ["c", "ys", "yz"], ["y"]),
    ]
    model = file(nodes, x, ["y"], stored)
    fast, plain = (ran(model, x, optimised)[0].astype(int) for optimised in (True, False))
    graph = from_onnx(model)
    at = next(i for i, n in enumerate(graph.nodes) if n.op.name == "conv")
    rest = [t.astype(float) for t in (x,)]
    sums = next(s for s in saturation.sums_in_16_bits(graph, rest, at))
    wrong = np.clip(np.rint(sums / stored["ys"]) + 128, 0, 255).astype(int)
    arithmetic = fused_arithmetic_of(runtime("onnxruntime"))
    ball = radius(graph, x.astype(float), arithmetic=arithmetic, backend="torch", formats=graph.formats).outputs
    verdicts = " and ".join(judge_array("y", got, ball).kind for got in (fast, plain, wrong))
    seen, told = np.abs(fast - plain), np.abs(wrong - plain)
    differ = f"{np.count_nonzero(seen):,} of {seen.size:,} cells differ, by at most {seen.max()}"
    would = f"{np.count_nonzero(told):,} would, by at most {told.max()}"
    return f"{bits}-bit weights: optimised against not, {differ}; with sums in 16 bits {would}; judged {verdicts}"


def processor() -> str:
    info = Path("/proc/cpuinfo")
    flags = set(info.read_text().partition("flags")[2].partition("\n")[0].split()) if info.exists() else set()
    return ", ".join(f for f in ("avx2", "avx512bw", "avx_vnni", "avx512_vnni", "amx_int8") if f in flags)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one seed, small layers")
    quick = parser.parse_args().quick
    print(f"onnxruntime {onnxruntime.__version__}, {platform.machine()} with {processor()}")
    tally, started = Tally(), time.perf_counter()
    for name in list(LAYERS)[5:] if quick else LAYERS:
        for types in PAIRS:
            for seed, kind in enumerate(DATA * (1 if quick else 2)):
                layer(tally, name, types, kind, seed)
        print(f"{name}: {', '.join(f'{n:,} {what}' for what, n in tally.cells.items())} cells so far", flush=True)
    seconds = time.perf_counter() - started
    several = ", ".join(f"{n:,} of {tally.cells[what]:,} {what}" for what, n in tally.open.items())
    print(f"sets of more than one number: {several}; {len(tally.alarms)} alarms; {seconds:.0f} s")
    for text in tally.alarms:
        print(text)
    for bits in () if quick else (7, 8):
        print(finding(bits))
    return 1 if tally.alarms else 0


if __name__ == "__main__":
    sys.exit(main())
