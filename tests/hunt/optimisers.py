"""Real optimisers, each as a function from a graph to something that runs it: ONNX Runtime, OpenVINO, XLA, PyTorch."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import specgrad as sg

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # before its first import

Runner = Callable[[Sequence[np.ndarray]], list[np.ndarray]]
LEVELS = ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL")


def model_bytes(graph: sg.Graph) -> bytes:
    from specgrad.interop import to_onnx

    written: bytes = to_onnx(graph).SerializeToString()
    return written


def onnxruntime_session(model: bytes, level: str = "ORT_ENABLE_ALL") -> Runner:
    ort = pytest.importorskip("onnxruntime")
    ort.set_default_logger_severity(3)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]
    return lambda inputs: list(session.run(None, dict(zip(names, inputs, strict=True))))


def openvino_model(model: bytes) -> Runner:
    """With float32 asked for: where a processor has AMX its default is bfloat16, another arithmetic."""
    ov = pytest.importorskip("openvino")
    core = ov.Core()
    options = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
    compiled = core.compile_model(core.read_model(model), "CPU", options)
    return lambda inputs: [np.array(y) for y in compiled(list(inputs)).values()]


def jax_jit(graph: sg.Graph) -> Runner:
    jax = pytest.importorskip("jax")
    compiled = jax.jit(sg.compile(graph, "jax"))
    return lambda inputs: [np.asarray(y) for y in sg.tree.leaves(compiled(*map(jax.numpy.asarray, inputs)))]


def torch_eager(graph: sg.Graph) -> Runner:
    torch = pytest.importorskip("torch")
    module = sg.compile(graph, "torch")
    return lambda inputs: _torch_outputs(torch, module, inputs)


def torch_inductor(graph: sg.Graph) -> Runner:
    torch = pytest.importorskip("torch")
    if shutil.which("g++") is None:
        pytest.skip("inductor needs a C++ compiler; g++ is not there")
    torch._dynamo.reset()
    module = torch.compile(sg.compile(graph, "torch"), backend="inductor")
    return lambda inputs: _torch_outputs(torch, module, inputs)


def _torch_outputs(torch: Any, module: Any, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    with torch.no_grad():
        found = module(*(torch.from_numpy(np.array(x)) for x in inputs))
    return [y.numpy() for y in sg.tree.leaves(found)]


OPTIMISERS: dict[str, Callable[[sg.Graph], Runner]] = {
    f"onnxruntime {level}": lambda graph, level=level: onnxruntime_session(model_bytes(graph), level)
    for level in LEVELS
}  # fmt: skip
OPTIMISERS |= {
    "openvino": lambda graph: openvino_model(model_bytes(graph)),
    "jax.jit": jax_jit,
    "torch": torch_eager,
}


def is_misread_by_openvino(graph: sg.Graph) -> bool:
    """What it gets wrong, shown in test_optimisers.py; a hunt leaves these networks out."""
    axes = [a for n in graph.nodes if n.op.name == "conv" for a in n.params["window"].axes]
    padded_stride = any(a.kernel == 1 and a.stride > 1 and a.lo + a.hi > 0 for a in axes)
    return padded_stride or _reads_a_square_both_ways(graph)


def _reads_a_square_both_ways(graph: sg.Graph) -> bool:
    """One array of weights, as many in as out, in two products that sum over different axes of it."""
    ways: dict[int, set[str]] = {}
    for node in graph.nodes:
        for a in set(node.operands()) & set(graph.constants):
            if node.op.name in ("contract", "conv", "conv_transpose"):
                ways.setdefault(a, set()).add(str(node.params.get("spec", node.op.name)))
    return any(len(ways[a]) > 1 and len(set(graph.nodes[a].shape[:2])) == 1 for a in ways)
