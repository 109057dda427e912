"""Networks that Keras exports: channels last, an open batch, Transposes around convolutions, Flatten in Keras's order.

The files were made by Keras 3.15.1, TensorFlow 2.21.0 and tf2onnx 1.17.0 (`model.export(file, format="onnx")`), biases
and moving averages drawn at random:

    flat    Conv2D(4, 3, relu), MaxPooling2D(2), Flatten(), Dense(5)
    same    Conv2D(4, 3, strides=2, padding="same"), BatchNormalization(), ReLU(), AveragePooling2D(2, padding="same"),
            GlobalAveragePooling2D(), Dense(4, softmax)
    depth   DepthwiseConv2D(3, padding="same"), ReLU(6), SeparableConv2D(6, 3), LeakyReLU(0.1), ZeroPadding2D(1),
            MaxPooling2D(3, strides=2, padding="same"), GlobalMaxPooling2D(), Dense(3, sigmoid)

all of inputs (12, 12, 3).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("torch")

from specgrad.bounds import certify  # noqa: E402
from specgrad.check import audit  # noqa: E402
from specgrad.interop import from_onnx  # noqa: E402
from specgrad.rounding import radius  # noqa: E402

FILES = {name: Path(__file__).parent / "keras" / f"{name}.onnx" for name in ("flat", "same", "depth")}


def inputs(batch: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(batch, 12, 12, 3)).astype(np.float32)


def run(name: str, x: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(str(FILES[name]), providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {session.get_inputs()[0].name: x})
    return y


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("batch", [1, 3])
def test_they_compute_what_onnx_runtime_does(name: str, batch: int) -> None:
    """Within the proven radius; every cell of the input counts, so an order of axes that is wrong would show."""
    x = inputs(batch)
    ball = radius(from_onnx(FILES[name]), x).outputs
    assert ball.contains(run(name, x)).all()
    assert np.max(ball.radius) < 1e-3


@pytest.mark.parametrize("name", FILES)
def test_they_are_certified_and_broken(name: str) -> None:
    x = inputs(1)
    label = int(np.argmax(run(name, x)))
    assert certify(str(FILES[name]), (x, label, 1e-4)).verdict == "holds"
    found = certify(str(FILES[name]), (x, label, 10.0))
    assert found.verdict == "violated"
    y = run(name, found.counterexample.x)
    assert np.argmax(y) != label or np.sort(y.ravel())[-2] == y.max()


@pytest.mark.parametrize("name", FILES)
def test_audits_see_rounding_alone(name: str) -> None:
    assert audit(str(FILES[name]), "onnxruntime", inputs(1)).verdict == "rounding"
