"""From the camera's bytes to a class: which decisions can no correct runtime change?

The whole way stands in one ONNX file: a crop, the cast from uint8, a resize by one half, / 255, normalisation and a
small network. So the statement begins at the bytes, and includes every rounding of the preprocessing.

    python examples/camera.py            writes camera.onnx and images.npz here, and prints what is proven
    specgrad preserve camera.onnx images.npz --html report.html
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from specgrad.check import preserve

CLASSES, MEAN, DEVIATION = 4, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def model(seed: int = 0) -> Any:
    """(N, 40, 40, 3) bytes -> (N, CLASSES) scores."""
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(seed)
    planes = lambda v: np.float32(v).reshape(3, 1, 1)
    constants: dict[str, Any] = {"full": np.float32(255), "mean": planes(MEAN), "deviation": planes(DEVIATION)}
    constants |= {"first": np.array([4, 4]), "last": np.array([36, 36]), "axes": np.array([1, 2])}
    constants |= {"half": np.float32([1, 0.5, 0.5, 1])}
    constants |= {"w1": rng.normal(size=(8, 3, 3, 3)).astype(np.float32) / 5, "b1": np.zeros(8, np.float32)}
    constants |= {"w2": rng.normal(size=(CLASSES, 8 * 7 * 7)).astype(np.float32) / 20}
    steps = [
        helper.make_node("Slice", ["image", "first", "last", "axes"], ["crop"]),
        helper.make_node("Cast", ["crop"], ["numbers"], to=TensorProto.FLOAT),
        helper.make_node("Resize", ["numbers", "", "half"], ["small"], mode="linear"),
        helper.make_node("Transpose", ["small"], ["planes"], perm=[0, 3, 1, 2]),
        helper.make_node("Div", ["planes", "full"], ["unit"]),
        helper.make_node("Sub", ["unit", "mean"], ["centred"]),
        helper.make_node("Div", ["centred", "deviation"], ["normal"]),
        helper.make_node("Conv", ["normal", "w1", "b1"], ["conv"]),
        helper.make_node("Relu", ["conv"], ["relu"]),
        helper.make_node("MaxPool", ["relu"], ["pool"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["pool"], ["cells"]),
        helper.make_node("Gemm", ["cells", "w2"], ["scores"], transB=1),
    ]
    ends = (
        [helper.make_tensor_value_info("image", TensorProto.UINT8, ["N", 40, 40, 3])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["N", CLASSES])],
    )
    weights = [numpy_helper.from_array(np.asarray(v), name) for name, v in constants.items()]
    graph = helper.make_graph(steps, "camera", *ends, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def images(count: int = 20, seed: int = 1) -> np.ndarray:
    """Bytes of soft blobs."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (count, 5, 5, 3))
    return np.kron(coarse, np.ones((1, 8, 8, 1))).astype(np.uint8)


def main() -> None:
    import onnx

    data = images()
    onnx.save(model(), "camera.onnx")
    np.savez("images.npz", image=data)
    result = preserve(Path("camera.onnx"), data, "argmax", runtimes=())
    print(result)
    nearest = min(result.samples, key=lambda s: s.ratio)
    print(f"nearest: image {nearest.number}, margin {nearest.margin:.3g}, tolerance {nearest.tolerance:.3g}")
    print("on every execution in " + result.deployment["format"])


if __name__ == "__main__":
    main()
