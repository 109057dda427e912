"""Runs ONNX's own C++ code on a file in a separate process: checker, function inliner, shape inference."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx

from specgrad.errors import SpecgradError
from specgrad.interop.onnx.file import parse, with_external_data
from specgrad.process import Process

PROGRAM = """
import json
import numpy as np
import onnx
import onnx.inliner


def said(error):
    return " ".join(str(error).split())[:400] or type(error).__name__


def run(data):
    raw, answer = data.tobytes(), {"checker": None, "inliner": None, "inferred": {}}
    try:
        onnx.checker.check_model(raw, full_check=True)
    except Exception as error:
        answer["checker"] = said(error)
    model, expanded = onnx.load_from_string(raw), b""
    try:
        if len(model.functions):
            model = onnx.inliner.inline_local_functions(model)
            expanded = model.SerializeToString()
    except Exception as error:
        answer["inliner"] = said(error)
    try:
        model = onnx.shape_inference.infer_shapes(model, data_prop=True)
    except Exception:
        pass  # the checker has said it, and nothing more is known
    for info in [*model.graph.value_info, *model.graph.output]:
        kind = info.type.tensor_type
        dims = [d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else None for d in kind.shape.dim]
        answer["inferred"][info.name] = [kind.elem_type, dims if kind.HasField("shape") else None]
    return [np.frombuffer(json.dumps(answer).encode(), np.uint8), np.frombuffer(expanded, np.uint8)]
"""


@dataclass(frozen=True)
class OnnxCodeResult:
    """What ONNX's checker, inliner and shape inference say of a model.

    checker    what onnx.checker objects to; None: nothing
    ended      how the process ended where it gave no answer ("crashes: SIGSEGV"); None: it gave one
    inliner    why the functions of the model cannot be expanded; None: they can, or there are none
    expanded   the model with its functions expanded; None: it has none, or they cannot be
    inferred   value -> element type and sizes (None where open), as declared or as ONNX's inference finds
    """

    checker: str | None = None
    ended: str | None = None
    inliner: str | None = None
    expanded: onnx.ModelProto | None = None
    inferred: Mapping[str, tuple[int, tuple[int | None, ...] | None]] = field(default_factory=dict)


def run_onnx_code(model: onnx.ModelProto, folder: Path | None, process: Process) -> OnnxCodeResult:
    """Return what ONNX's checker, inliner and shape inference say of the model, external data included, in another
    process.

    `folder` holds external data.
    """
    try:
        whole = with_external_data(model, folder)
        data = np.frombuffer(whole.SerializeToString(), np.uint8)
    except (SpecgradError, ValueError) as error:
        return OnnxCodeResult(ended=f"the model could not be handed over: {error}")
    answer = process.run(PROGRAM, {}, [data])
    if answer.outcome != "answers":
        return OnnxCodeResult(ended=f"{answer.outcome}: {answer.reason}")
    content, raw = json.loads(answer.arrays[0].tobytes()), answer.arrays[1].tobytes()
    inferred = {
        name: (kind, None if dims is None else tuple(dims)) for name, (kind, dims) in content["inferred"].items()
    }
    return OnnxCodeResult(content["checker"], None, content["inliner"], parse(raw) if raw else None, inferred)
