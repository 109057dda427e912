"""Runtimes that read ONNX files: a test case becomes a model of one node, opset 22, embedded in the program.

`q` is the test case in all functions here; what the runtime lacks raises NotOffered.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np

from specgrad.process import onnxruntime_program

from ...errors import need
from ...op import REGISTRY
from ..cases.op_case import OpCase
from .runtime_spec import NotOffered, Runtime

OnnxCall = tuple[str, dict[str, Any], dict[str, Any]]  # operator, attributes, further constant inputs
AUTO_PAD = {"same_upper": "SAME_UPPER", "same_lower": "SAME_LOWER", "valid": "VALID"}


def _padding_attributes(padding: Any, rank: int) -> dict[str, Any]:
    """Return the ONNX attributes of padding over `rank` axes (0, a pair per axis, or a word): all begins, then all
    ends; or auto_pad.
    """
    if isinstance(padding, str):
        return {"auto_pad": AUTO_PAD[padding]}
    pairs = ((0, 0),) * rank if padding == 0 else padding
    return {"pads": [lo for lo, _ in pairs] + [hi for _, hi in pairs]}


def _conv(q: OpCase) -> OnnxCall:
    """Return (Conv or ConvTranspose, its attributes, its further constant inputs) for test case q."""
    a, kernel = q.attributes, q.arrays["w"].shape[2:]
    attributes = {"kernel_shape": kernel, "strides": a["stride"], "dilations": a["dilation"], "group": a["groups"]}
    attributes |= _padding_attributes(a["padding"], len(kernel))
    if q.operator == "conv":
        return "Conv", attributes, {}
    attributes["output_padding"] = a["output_padding"]
    if q.spelling == "output_shape":
        del attributes["pads"]
        attributes["output_shape"] = q.output_shape()[2:]
    return "ConvTranspose", attributes, {}


def _pool_attributes(q: OpCase) -> dict[str, Any]:
    """Return the ONNX attributes that all poolings share, for test case q."""
    a = q.attributes
    attributes = {
        "kernel_shape": a["kernel"],
        "strides": a["stride"],
        **_padding_attributes(a["padding"], len(a["kernel"])),
    }
    if "dilation" in a:
        attributes["dilations"] = a["dilation"]
    return attributes | ({"ceil_mode": 1} if a.get("ceil") else {})


def _max_pool(q: OpCase) -> OnnxCall:
    """Return (MaxPool, its attributes, no further inputs) for test case q."""
    return "MaxPool", _pool_attributes(q), {}


def _avg_pool(q: OpCase) -> OnnxCall:
    """Return (AveragePool, its attributes, no further inputs) for test case q; raise NotOffered with a divisor."""
    if q.attributes.get("divisor") is not None:
        raise NotOffered("ONNX has no divisor")
    return (
        "AveragePool",
        _pool_attributes(q) | {"count_include_pad": int(q.attributes.get("count_include_pad", True))},
        {},
    )


def _upsample(q: OpCase) -> OnnxCall:
    """Return (Resize, its attributes, its further constant inputs) for test case q, a nearest upsampling."""
    scales = np.array([1, 1, *q.attributes["factor"]], np.float32)
    named = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return "Resize", named, {"roi": None, "scales": scales}


def _resize(q: OpCase) -> OnnxCall:
    """Return (Resize, its attributes, its further constant inputs) for test case q."""
    a, lead = q.attributes, q.arrays["x"].shape[:2]
    mode = {"mode": "linear"} if a["how"] == "linear" else {"mode": "nearest", "nearest_mode": a["how"]}
    sizes = np.array([*lead, *a["sizes"]], np.int64)
    return (
        "Resize",
        mode | {"coordinate_transformation_mode": a["where"]},
        {"roi": None, "scales": None, "sizes": sizes},
    )


def _cumsum(q: OpCase) -> OnnxCall:
    """Return (CumSum, its attributes, its constant input axis) for test case q."""
    a = q.attributes
    flags = {"exclusive": int(a["exclusive"]), "reverse": int(a["reverse"])}
    return "CumSum", flags, {"axis": np.array(a["axis"], np.int64)}


def _clip(q: OpCase) -> OnnxCall:
    """Return (Clip, no attributes, its constant inputs low and high) for test case q."""
    return "Clip", {}, {k: np.float32(v) for k, v in q.attributes.items()}


def _direct_call(name: str, **renamed: str) -> Callable[[OpCase], OnnxCall]:
    """Return the writer of operators that are one ONNX node `name`: from a test case to the node; `renamed` maps our
    attributes to ONNX's.
    """
    return lambda q: (name, {new: q.attributes[old] for old, new in renamed.items()}, {})


NODES: dict[str, Callable[[OpCase], OnnxCall]] = {
    **{op.name: _direct_call(op.names.onnx) for op in REGISTRY.values() if op.names.onnx},
    "conv": _conv,
    "conv_transpose": _conv,
    "linear": lambda q: ("Gemm", {"transB": 1}, {}),
    "max_pool": _max_pool,
    "max_pool_indices": _max_pool,
    "avg_pool": _avg_pool,
    "lp_pool": lambda q: ("LpPool", _pool_attributes(q) | {"p": q.attributes["p"]}, {}),
    "global_avg_pool": lambda q: ("GlobalAveragePool", {}, {}),
    "global_max_pool": lambda q: ("GlobalMaxPool", {}, {}),
    "batch_norm": lambda q: ("BatchNormalization", {"epsilon": q.attributes["eps"]}, {}),
    "upsample_nearest": _upsample,
    "resize": _resize,
    "cumsum": _cumsum,
    "leaky_relu": _direct_call("LeakyRelu", slope="alpha"),
    "clamp": _clip,
    "softmax": _direct_call("Softmax", axis="axis"),
    "log_softmax": _direct_call("LogSoftmax", axis="axis"),
}


def _array_names(q: OpCase) -> list[str]:
    """Return the array names of test case q in ONNX's order: BatchNormalization has scale, bias, mean, var."""
    return ["x", "weight", "bias", "mean", "var"] if q.operator == "batch_norm" else list(q.arrays)


def _runtime_inputs(q: OpCase) -> list[str]:
    """Return the arrays of test case q that are inputs of the model; constant weights stand in the file, for fast
    kernels.
    """
    return ["x"] if q.spelling == "constant weights" else list(q.arrays)


def model(q: OpCase) -> bytes:
    """Return the test case as the bytes of an ONNX file with one node.

    Arrays that are no inputs of a runtime are stored. MissingPackageError without onnx.
    """
    need("onnx", "this runtime needs")
    from onnx import TensorProto, helper, numpy_helper

    name, attributes, constants = NODES[q.operator](q)
    stored = {k: v for k, v in constants.items() if v is not None} | {
        k: v for k, v in q.arrays.items() if k not in _runtime_inputs(q)
    }
    outputs = [(o, TensorProto.INT64 if o == "indices" else TensorProto.FLOAT) for o in q.answers()]
    node = helper.make_node(
        name,
        [*_array_names(q), *("" if v is None else k for k, v in constants.items())],
        [o for o, _ in outputs],
        **attributes,
    )
    graph = helper.make_graph(
        [node],
        "question",
        [helper.make_tensor_value_info(k, TensorProto.FLOAT, q.arrays[k].shape) for k in _runtime_inputs(q)],
        [helper.make_tensor_value_info(o, kind, None) for o, kind in outputs],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in stored.items()],
    )
    file = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    return bytes(file.SerializeToString())


FROM_FLAT = """    first = np.arange(x.shape[0] * x.shape[1]).reshape(x.shape[:2] + (1,) * (x.ndim - 2)) * x[0, 0].size
    y[1] = y[1] - first  # ONNX counts over batch and channels too
"""


def _program(q: OpCase, running: str) -> str:
    """Return the runtime's program text `running`, with the file of case q's one node embedded in place of `model`.

    Raises NotOffered if ONNX lacks the operator, and for gradients.
    """
    if q.operator not in NODES or q.gradient is not None:
        raise NotOffered(f"ONNX has no {q.operator}")
    lines = "\n".join(f'    "{part}"' for part in textwrap.wrap(model(q).hex(), 100))
    embedded = f"# {NODES[q.operator](q)[0]}, opset 22, one node\nMODEL = bytes.fromhex(\n{lines}\n)\n"
    names = ", ".join(q.arrays)
    feeds = "{" + ", ".join(f'"{n}": {n}' for n in _runtime_inputs(q)) + "}"
    text = running.replace("\ndef run(", f"\n{embedded}\ndef run(").replace("model.tobytes()", "MODEL")
    text = text.replace("run(model, /, **inputs)", f"run({names})").replace("inputs", feeds)
    if q.operator != "max_pool_indices":
        return text
    return "import numpy as np\n" + text.replace("    return ", "    y = ") + FROM_FLAT + "    return y\n"


# Each way to run a file, given its bytes as an array, in the folder of its external data: for audits as it stands, for
# questions with one node embedded.
REFERENCE = """import onnx
from onnx.reference import ReferenceEvaluator

def run(model, /, **inputs):
    file = onnx.load_from_string(model.tobytes())
    onnx.load_external_data_for_model(file, ".")
    return ReferenceEvaluator(file).run(None, inputs)
"""
COMPILED = """import openvino

def run(model, /, **inputs):
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(model.tobytes()), "CPU"{hint})
    return [np.array(v) for v in compiled(inputs).to_tuple()]
"""
VINO = "import numpy as np\n" + COMPILED.format(hint="")
VINO_F32 = "import numpy as np\n" + COMPILED.format(hint=', {"INFERENCE_PRECISION_HINT": "f32"}')


def _program_maker(running: str) -> Callable[[OpCase], str]:
    """Return the function from a test case to its program: the text `running` with the case's model embedded."""
    return lambda q: _program(q, running)


ONNXRUNTIME = Runtime(
    "onnxruntime",
    ("onnxruntime", "onnx"),
    _program_maker(onnxruntime_program.PROGRAM),
    onnxruntime_program.PROGRAM,
    functions="onnxruntime",
    environment=onnxruntime_program.ENVIRONMENT,
    device="CPUExecutionProvider",
    demand="assert {device!r} in onnxruntime.get_available_providers()",  # it would take the CPU without a word
)
OPENVINO = Runtime(
    "openvino", ("openvino", "onnx"), _program_maker(VINO), VINO, flush=True, functions="openvino-f32", device="CPU"
)
OPENVINO_F32 = Runtime(
    "openvino-f32",
    ("openvino", "onnx"),
    _program_maker(VINO_F32),
    VINO_F32,
    flush=True,
    functions="openvino-f32",
    device="CPU",
)
ONNX_REFERENCE = Runtime("onnx-reference", ("onnx",), _program_maker(REFERENCE), REFERENCE, functions="onnx-reference")
