"""Recorded answers of GPUs' tensor cores, and a bit-accurate model of them, against the radius of their class.

    python benchmarks/tensor_cores.py --recorded FOLDER      # model_validation of a checkout of
                                       # github.com/north-numerical-computing/MATLAB-tensor-core (Khattak, Mikaitis)
    python benchmarks/tensor_cores.py --model                # pip install mmasim (Xie et al., arXiv 2511.10909)

A row is a class of sums on a GPU: how many sums, how many left the radius (must be 0), the largest error over the
radius. FOLDER holds one step of a tensor core per line, which a GPU computed; the model adds long sums, step by step.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import specgrad as sg
from specgrad.ops.contract import contract
from specgrad.rounding import Arithmetic, Ball, TensorCore, radius

FP8 = {"E4M3": "float8_e4m3fn", "E5M2": "float8_e5m2"}
FACTORS = {"fp16": "float16", "bf16": "bfloat16", "tf32": "tf32", **FP8}
PLACES = {"V100": 23, "A100": 24, "A2": 24, "Ada": 24, "L40S": 24, "H100": 25, "H200": 25, "B200": 25}
OLD_FP8 = ("Ada", "L40S", "H100", "H200")


def core_of(gpu: str, factor: str, result: str) -> TensorCore:
    """Return the published parameters of a GPU's tensor core, for factors and results of these formats."""
    core = TensorCore(PLACES[gpu])
    if factor in FP8 and gpu in OLD_FP8:
        core = TensorCore(13, digits=14)
    return core if result == "fp32" else replace(core, digits=11, keep="nearest", exponents="float16")


def ball_of(core: TensorCore, factor: str, a: Any, b: Any, c: Any) -> Ball:
    """Return the ball of c + the sums of a*b over the last axis."""
    graph = sg.trace(lambda a, b, c: contract(a, b, "ab,ab->a") + c, a.shape, b.shape, c.shape)
    dtype = "float16" if core.exponents == "float16" else "float32"
    operands = None if dtype == FACTORS[factor] else FACTORS[factor]
    meant = Arithmetic(dtype, operands, flush=False, cores=core)
    return radius(graph, a, b, c, arithmetic=meant).outputs


def row(name: str, ball: Ball, got: Any) -> str:
    """Return a line of the table; NaN and infinite answers are left out."""
    finite = np.isfinite(got) & np.isfinite(ball.radius)
    error = np.abs(got - ball.value)[finite]
    ratio = np.max(error / ball.radius[finite], initial=0.0)
    outside = int((~ball.contains(got))[finite].sum())
    return f"{name:44} {finite.sum():7} {outside:8} {ratio:12.3f}"


def floats(path: Path, base: int) -> Any:
    """Return the float32 numbers of a text file of bits, in hexadecimal (16) or binary (2)."""
    return np.array([int(t, base) for t in path.read_text().split()], np.uint32).view(np.float32).astype(float)


def recorded(folder: Path) -> Iterator[str]:
    """Yield a line per GPU, format of factors and format of results."""
    for path in sorted(folder.glob("*/*/d_*.txt")):
        gpu, factor, result = path.parts[-3], path.parts[-2], path.stem.split("_")[-1]
        got = floats(path, 2)
        a, b = (floats(path.parent / f"{which}_{gpu}_{factor}.txt", 16).reshape(len(got), -1) for which in "ab")
        c = floats(path.parent / f"c_{gpu}_fp32.txt", 2)
        if factor in FP8 and gpu in ("H100", "H200") and result == "fp32":  # measured without an accumulator
            c = np.zeros_like(c)
        c = c.astype(np.float16).astype(float) if result == "fp16" else c
        core = replace(core_of(gpu, factor, result), terms=a.shape[1])
        yield row(f"{gpu}, {factor} factors, {result} results, K={a.shape[1]}", ball_of(core, factor, a, b, c), got)


def modelled(seed: int = 0) -> Iterator[str]:
    """Yield a line per modelled unit, length of sums and kind of numbers."""
    import torch
    from mmasim.amd.sim import MFMA
    from mmasim.nv_ptx.sim import MMA, WGMMA, TCGen05MMA

    rng = np.random.default_rng(seed)
    f8 = "e4m3"
    units: list[tuple[str, Any, str, Any, TensorCore]] = [
        ("V100", MMA("Volta", "m8n8k4.f32.f16.f16.f32"), "fp16", torch.float16, TensorCore(23, terms=4)),
        ("A100", MMA("Ampere", "m16n8k16.f32.bf16.bf16.f32"), "bf16", torch.bfloat16, TensorCore(24, terms=8)),
        ("A100", MMA("Ampere", "m16n8k16.f16.f16.f16.f16"), "fp16", torch.float16, core_of("A100", "fp16", "fp16")),
        ("L40S", MMA("Ada Lovelace", f"m16n8k32.f32.{f8}.{f8}.f32"), "E4M3", torch.float8_e4m3fn,
         TensorCore(13, digits=14, terms=16)),
        ("H100", WGMMA("Hopper", f"m64n8k32.f32.{f8}.{f8}"), "E4M3", torch.float8_e4m3fn,
         TensorCore(13, digits=14, terms=32)),
        ("H100", WGMMA("Hopper", "m64n8k16.f32.bf16.bf16"), "bf16", torch.bfloat16, TensorCore(25, terms=16)),
        ("B200", TCGen05MMA("Blackwell", f"m64n8k32.kind::f8f6f4.f32.{f8}.{f8}"), "E4M3", torch.float8_e4m3fn,
         TensorCore(25, terms=32)),
        ("MI300", MFMA("CDNA3", "f32_16x16x16_f16"), "fp16", torch.float16, TensorCore(23, keep="nearest", terms=8)),
    ]  # fmt: skip
    for gpu, unit, factor, kind, core in units:
        for k in (64, 512, 4096):
            for data in ("normal", "positive", "spread"):
                a, b = (_numbers(rng, data, (200, k)) for _ in "ab")
                a, b = (torch.tensor(x).to(kind) for x in (a, b))
                first = torch.zeros(200, dtype=torch.float16 if core.exponents == "float16" else torch.float32)
                got = unit.dpa(a, b, first).double().numpy()
                ball = ball_of(core, factor, a.double().numpy(), b.double().numpy(), first.double().numpy())
                yield row(f"{gpu}, {factor} factors, K={k}, {data}", ball, got)


def _numbers(rng: np.random.Generator, data: str, shape: tuple[int, ...]) -> Any:
    """Return random numbers: normal ones, their sizes, or such as differ by up to 2**8."""
    x = rng.normal(size=shape)
    return {"normal": x, "positive": np.abs(x), "spread": x * 2.0 ** rng.integers(-4, 4, shape)}[data]


def main() -> None:
    """Print the tables that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recorded", type=Path, help="the folder model_validation")
    parser.add_argument("--model", action="store_true", help="run the models of mmasim")
    asked = parser.parse_args()
    print(f"{'tensor core':44} {'sums':>7} {'outside':>8} {'error/radius':>12}")
    for line in itertools.chain(recorded(asked.recorded) if asked.recorded else (), modelled() if asked.model else ()):
        print(line, flush=True)


if __name__ == "__main__":
    main()
