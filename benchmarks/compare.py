"""Pairs of models, before and after real optimisers and exporters, and with mistakes: what `compare` says of each.

    python benchmarks/compare.py > benchmarks/compare.txt
    python benchmarks/compare.py --box > benchmarks/compare_box.txt      every pair that differs, on boxes of inputs

onnxoptimizer and onnxsim are used where they are installed; they are no dependency of ours.
"""

from __future__ import annotations

import copy
import importlib.metadata
import importlib.util
import io
import logging
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests" / "check"), str(ROOT / "tests" / "interop")]
warnings.simplefilter("ignore")
logging.disable(logging.WARNING)

import onnx  # noqa: E402
import torch  # noqa: E402

import compared  # noqa: E402
import models  # noqa: E402
from specgrad.bounds import Box  # noqa: E402
from specgrad.check import compare  # noqa: E402
from specgrad.check.comparison.box_difference import bound_difference  # noqa: E402
from specgrad.equivalence.normal_form import normal_form  # noqa: E402
from specgrad.equivalence.term_table import TermTable  # noqa: E402
from specgrad.interop import from_onnx  # noqa: E402
from specgrad.rounding import Arithmetic  # noqa: E402

Pair = tuple[str, str, Any, Any, np.ndarray]  # what it is, what is right, the models, an input
X = np.random.default_rng(1).normal(size=compared.SHAPE).astype(np.float32)


def mistakes() -> Iterator[Pair]:
    """One small network, in other words and with mistakes (tests/check/compared.py)."""
    for change in (*compared.SAME, *compared.OTHER):
        wanted = "same" if change in compared.SAME else "differs"
        yield f"small: {change.__name__}", wanted, compared.original(), compared.edited(change), X


def exporters(name: str) -> Iterator[Pair]:
    """One PyTorch module through both exporters, plain and optimised, and what optimisers make of its file."""
    module, x = models.SMALL[name]()
    plain = models.exported_onnx(module, x, optimize=False)
    given = x.numpy()
    file = io.BytesIO()
    torch.onnx.export(module, (x,), file, dynamo=False, do_constant_folding=False)
    old = onnx.load_from_string(file.getvalue())
    yield f"{name}: torch.onnx new, old", "same", plain, old, given
    norms = any(n.op_type == "BatchNormalization" for n in plain.graph.node)
    for what, made in optimised(old, module, x):
        yield f"{name}: {what}", "differs" if norms and rounds(made) else "same", old, made, given
    if norms:
        other = copy.deepcopy(module)
        for part in other.modules():
            if hasattr(part, "eps"):
                part.eps = 1e-3
        yield f"{name}: eps 1e-3 for 1e-5", "differs", plain, models.exported_onnx(other, x, optimize=False), given


def rounds(made: Any) -> bool:
    """Whether batch normalisations were folded into weights that are written down, and not into nodes."""
    given = {t.name for t in made.graph.initializer}
    left = any(n.op_type == "BatchNormalization" for n in made.graph.node)
    return not left and all(n.input[1] in given for n in made.graph.node if n.op_type == "Conv")


def optimised(plain: Any, module: Any, x: Any) -> Iterator[tuple[str, Any]]:
    yield "torch.onnx optimize=True", models.exported_onnx(module, x, optimize=True)
    with tempfile.TemporaryDirectory() as folder:
        yield "onnxruntime basic", compared.optimised(plain, "ORT_ENABLE_BASIC", f"{folder}/o.onnx")
    if importlib.util.find_spec("onnxoptimizer"):
        import onnxoptimizer

        passes = ["eliminate_identity", "fuse_bn_into_conv", "fuse_pad_into_conv", "fuse_matmul_add_bias_into_gemm"]
        yield "onnxoptimizer fuse_bn_into_conv, ...", onnxoptimizer.optimize(plain, passes)
    if importlib.util.find_spec("onnxsim"):
        import onnxsim

        yield "onnxsim", onnxsim.simplify(plain)[0]


def quantised() -> Iterator[Pair]:
    """ONNX Runtime's own static quantisation."""
    from onnxruntime.quantization import CalibrationDataReader, quantize_static

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self.given = iter([{"x": X}])

        def get_next(self) -> Any:
            return next(self.given, None)

    with tempfile.TemporaryDirectory() as folder:
        onnx.save(compared.original(), f"{folder}/a.onnx")
        quantize_static(f"{folder}/a.onnx", f"{folder}/b.onnx", Reader())
        yield "small: onnxruntime quantize_static", "differs", compared.original(), onnx.load(f"{folder}/b.onnx"), X


def row(pair: Pair) -> tuple[str, bool]:
    what, wanted, a, b, x = pair
    try:
        done = compare(a, b, x, seconds=120)
    except Exception as error:
        return f"| {what} | {wanted} | {type(error).__name__}: {error!s:.80} | | | | | |", False
    weights = "" if done.weights is None or done.verdict == "same" else f"{done.weights.relative:.1e}"
    how = {"same": done.method.partition(",")[0]}.get(done.verdict, "same structure" if weights else "other structure")
    point = done.witness
    gap, within = (f"{point.upper:.2g} of {point.allowed:.2g}", point.within_rounding) if point else ("", None)
    parts = " / ".join(done.divergent_layers) if done.divergent_layers else ""
    said = {True: "yes", False: "no", None: ""}[within]
    line = f"| {what} | {done.verdict} | {how} | {weights} | {gap} | {said} | {parts} | {done.seconds:.1f} |"
    return line, done.verdict == wanted


def on_boxes() -> None:
    """How far apart somewhere in the box, and how far nowhere, in exact numbers and as executed."""
    print("| pair | eps | reached | proven | by | each network by itself | executions, float32, fused | CPU s |")
    print("|---|--:|--:|--:|---|--:|--:|--:|")
    for pairs in (mistakes(), quantised(), *(exporters(n) for n in ("cnn3d", "resnet18"))):
        for what, wanted, a, b, x in pairs:
            if wanted == "differs":
                for eps, text in ((1 / 255, "1/255"), (0.05, "0.05")):
                    print(f"| {what} | {text} | {box_row(a, b, x, eps)} |", flush=True)


def box_row(a: Any, b: Any, x: np.ndarray, eps: float) -> str:
    table, start = TermTable(), time.process_time()
    forms = [normal_form(from_onnx(model), table) for model in (a, b)]
    far = bound_difference(*forms, table, (Box.around(x, eps),), Arithmetic(), False, lambda: None)
    spent = time.process_time() - start
    exact = f"{far.witness_difference:.3g} | {far.max_difference:.3g} | {far.how} | {far.independent_bound:.3g}"
    return f"{exact} | {far.max_execution_difference:.3g} | {spent:.1f}"


def main() -> None:
    if "--box" in sys.argv:
        on_boxes()
        return
    names = ("onnx", "onnxruntime", "torch", "onnxoptimizer", "onnxsim")
    known = [n for n in names if importlib.util.find_spec(n)]
    print(", ".join(f"{n} {importlib.metadata.version(n)}" for n in known))
    print()
    print("| pair | verdict | shown, or structure | weights apart, relative | outputs apart of float32's allowance "
          "| within | they part at | s |")  # fmt: skip
    print("|---|---|---|--:|--:|---|---|--:|")
    right, count = 0, 0
    for pairs in (mistakes(), quantised(), *(exporters(n) for n in ("lenet", "resnet18", "cnn3d", "unet"))):
        for pair in pairs:
            line, good = row(pair)
            right, count = right + good, count + 1
            print(line if good else f"{line} wrong: {pair[1]}", flush=True)
    print(f"\n{right} of {count} said rightly")


if __name__ == "__main__":
    main()
