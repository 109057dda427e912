"""The conv and pool node tests that the onnx package ships: all pass, or stand in REFUSED with the reason.

Expected outputs come from the package. The graph runs in float64 (integers: exactly), so the tolerance is the package's
own plus half a unit of the output's type.
"""

from __future__ import annotations

import pkgutil
import warnings
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.version_converter
import pytest
from onnx import numpy_helper
from onnx.backend.test.case import node

from specgrad import SpecgradError, exact
from specgrad.interop import from_onnx
from specgrad.rounding import radius

REFUSED = {
    "test_dequantizelinear_blocked": "DequantizeLinear 'y' [P5]: block_size=2 is not supported; only 0",
    "test_quantizelinear_blocked_asymmetric": "QuantizeLinear 'y' [P5]: block_size=2 is not supported; only 0",
    "test_quantizelinear_blocked_symmetric": "QuantizeLinear 'y' [P5]: block_size=2 is not supported; only 0",
    # The positions read depend on the data, between cells: no window relation.
    "test_basic_deform_conv_with_padding": "DeformConv 'Y_with_padding': reads at positions that depend on the data",
    "test_basic_deform_conv_without_padding": "DeformConv 'Y_without_padding': reads at positions that depend on the",
    "test_deform_conv_with_mask_bias": "DeformConv 'Y': reads at positions that depend on the data",
    "test_deform_conv_with_multiple_offset_groups": "DeformConv 'Y': reads at positions that depend on the data",
}
WORDS = ("conv", "pool", "quantizelinear", "qlinear", "matmulinteger")
NARROW = ("e4m3", "e5m2", "int4", "int2", "float4")  # types that are not read
QUANTISED = [np.dtype(t) for t in ("int8", "uint8", "int16", "uint16", "int32")]
DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"
CONVERTED = sorted(
    p
    for folder in ("pytorch-converted", "pytorch-operator")
    for p in (DATA / folder).iterdir()
    if any(word in p.name.lower() for word in ("conv", "pool"))
)


KINDS = [m.name for m in pkgutil.iter_modules(node.__path__) if any(word in m.name for word in WORDS)]
"""Files of the package with cases of these operators. A file makes its cases on import, some of them in seconds."""


def smaller(draw: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """Three cubes of 12 cells an axis for those of 32, in which the package's reference walks for seconds."""
    return lambda *shape: draw(*((1, 3, 12, 12, 12) if shape == (1, 3, 32, 32, 32) else shape))


@cache
def cases(kind: str) -> list[Any]:
    before = len(node._NodeTestCases)
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as m:
        warnings.simplefilter("ignore")  # some divide by zero
        m.setattr(np.random, "randn", smaller(np.random.randn))
        import_module(f"{node.__name__}.{kind}")
    return [c for c in node._NodeTestCases[before:] if not any(t in c.name for t in NARROW)]


def test_there_are_as_many_as_we_think() -> None:
    """129 with onnx 1.23; the 102 of the issue were counted on another release."""
    names = {c.name for kind in KINDS for c in cases(kind)}
    assert len(names) >= 102
    assert all(any(word in name for word in WORDS) for name in names)
    assert len(CONVERTED) == 46
    assert REFUSED.keys() <= names


def shapes_as_constants(model: onnx.ModelProto, inputs: list[Any]) -> tuple[onnx.ModelProto, list[Any]]:
    """MaxUnpool's output_shape is an input in the test; a shape must be known when a graph is built."""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    kept = []
    constants = {t.name for t in model.graph.initializer}
    names = [i.name for i in model.graph.input if i.name not in constants]
    for name, value in zip(names, inputs, strict=True):
        if name == "output_shape":
            model.graph.initializer.append(numpy_helper.from_array(value, name))
        else:
            kept.append(value)
    return model, kept


def wide(value: np.ndarray) -> np.ndarray:
    return value.astype(np.float64) if value.dtype.kind == "f" else value


def exact_beside_integers(inputs: list[Any]) -> list[Any]:
    """Quantised numbers are exact, and so must be the scales beside them."""
    quantised = any(v.dtype in QUANTISED for v in inputs)
    return [exact(v) if quantised else wide(v) for v in inputs]


def check(model: onnx.ModelProto, inputs: list[Any], outputs: list[Any], rtol: float, atol: float) -> None:
    model, inputs = shapes_as_constants(model, inputs)
    graph = from_onnx(model)
    results = graph(*exact_beside_integers(inputs))
    for found, wanted in zip((results,) if graph.single else results, outputs, strict=True):
        assert found.shape == wanted.shape
        if wanted.dtype == np.uint8 and not graph.single and not (found == wanted).all():  # a tie that float32 decides
            assert radius(graph, *inputs, formats=graph.formats).outputs[0].contains(wanted).all()
        elif wanted.dtype.kind in "iu":
            assert (found == wanted).all()
        else:
            extra = np.finfo(wanted.dtype).eps / 2
            np.testing.assert_allclose(np.asarray(found, float), wanted.astype(float), rtol=rtol + extra, atol=atol)


def check_case(case: Any) -> None:
    if case.name in REFUSED:
        with pytest.raises(SpecgradError) as caught:
            from_onnx(case.model)
        assert str(caught.value).startswith(REFUSED[case.name])
        return
    for inputs, outputs in case.data_sets:
        check(case.model, inputs, outputs, case.rtol, case.atol)


@pytest.mark.parametrize("kind", KINDS)
def test_node(kind: str) -> None:
    assert cases(kind)
    for case in cases(kind):
        try:
            check_case(case)
        except BaseException as error:
            error.add_note(f"in {case.name}")
            raise


def tensors(folder: Path, prefix: str) -> list[np.ndarray]:
    paths = sorted(folder.glob(f"{prefix}_*.pb"))
    return [numpy_helper.to_array(onnx.TensorProto.FromString(p.read_bytes())) for p in paths]


@pytest.mark.parametrize("folder", CONVERTED, ids=lambda p: p.name)
def test_converted_from_pytorch(folder: Path) -> None:
    """Models written by an old PyTorch exporter, with PyTorch's outputs; onnx's own converter lifts opset 6 to 9."""
    data = folder / "test_data_set_0"
    model = onnx.load(folder / "model.onnx")
    if model.opset_import[0].version < 7:
        model = onnx.version_converter.convert_version(model, 9)
    check(model, tensors(data, "input"), tensors(data, "output"), 1e-3, 1e-5)
