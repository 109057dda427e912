"""Node tests of the package onnx: as it makes them, or as its wheels up to 1.18 and backends store them in a folder."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import TensorProto

from specgrad.bounded_files import read_bytes
from specgrad.errors import FileError, ParameterError, SpecgradError
from specgrad.interop.onnx.file import BYTE_BUDGET, DTYPES, ByteBudget, read_model, tensor
from specgrad.scalar import Array

RTOL, ATOL = 1e-3, 1e-7
"""What onnx.backend.test allows in every node test."""
BFLOAT16_RTOL = 2.0**-6
"""The least rtol that its runner takes for outputs in bfloat16, which it compares in float32."""
CASES = "onnx.backend.test.case.node"


@dataclass(frozen=True, eq=False)
class NodeTest:
    """One test of onnx.

    name          as onnx calls it
    model         a ModelProto, most often of one node; "expanded": of the nodes that define it
    inputs, outputs   per input and output of the graph the array; None for what is no tensor of numbers that is read
    rtol, atol    what the runner allows
    """

    name: str
    model: Any
    inputs: tuple[Array | None, ...]
    outputs: tuple[Array | None, ...]
    rtol: float = RTOL
    atol: float = ATOL

    @property
    def operators(self) -> tuple[str, ...]:
        """The operators of the model's nodes, each once."""
        return tuple(dict.fromkeys(node.op_type for node in self.model.graph.node))


def installed_tests(seed: int = 0) -> tuple[list[NodeTest], str]:
    """Return the node tests of the installed package onnx in its order, and a sentence on where they come from.

    Many inputs are drawn from NumPy's global generator when onnx is asked for the first time, and onnx seeds it in few
    files: without `seed` every process would have other inputs. The generator is left as it was found.
    """
    from onnx.backend.test.loader import load_model_tests

    package = f"onnx {version('onnx')}"
    made = any(name.startswith(f"{CASES}.") for name in sys.modules)
    state = np.random.get_state()
    try:
        np.random.seed(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # infinities that the tests mean
            cases = load_model_tests(kind="node")
    finally:
        np.random.set_state(state)
    if any(case.model is None for case in cases):  # stored in the wheel
        return [
            _stored_test(Path(str(case.model_dir)), case.rtol, case.atol) for case in cases
        ], f"{package}, stored in it"
    drawn = "inputs drawn before, by the caller" if made else f"inputs drawn with seed {seed}"
    return [t for case in cases for t in _made_tests(case)], f"{package}, {drawn}"


def _made_tests(case: Any) -> list[NodeTest]:
    """Return the tests of one of onnx's cases, one per set of data."""
    return [
        NodeTest(case.name, case.model, _arrays(given), _arrays(expected), case.rtol, case.atol)
        for given, expected in case.data_sets
    ]


def _arrays(values: Sequence[Any]) -> tuple[Array | None, ...]:
    """Return each value as an array; None for what is none."""
    return tuple(map(_array, values))


def _array(value: Any) -> Array | None:
    """Return a TensorProto, an array or a number as an array, bfloat16 as float32; None for what is read as neither."""
    if isinstance(value, TensorProto):
        try:
            return tensor(value, None, ByteBudget(BYTE_BUDGET))
        except SpecgradError:
            return None
    if not isinstance(value, np.ndarray | np.generic):
        return None
    array = np.asarray(value)
    if array.dtype.name == "bfloat16":
        return array.astype(np.float32)
    return array if array.dtype in DTYPES.values() else None


# --- in a folder ------------------------------------------------------------------------------------------------------


def stored_tests(folder: Path) -> list[NodeTest]:
    """Return the tests in a folder, by name: in each subfolder model.onnx, test_data_set_0/input_0.pb, output_0.pb, ...

    ParameterError if there is none; FileError or ModelError for files that cannot be read.
    """
    homes = sorted(path.parent for path in folder.glob("*/model.onnx"))
    if not homes:
        raise ParameterError("tolerance", f"no subfolder of {folder} has a model.onnx", rule="P5")
    return [_stored_test(home, RTOL, ATOL) for home in homes]


def _stored_test(home: Path, rtol: float, atol: float) -> NodeTest:
    """Return the test in the folder `home`, with the tolerances of its runner."""
    model, _ = read_model(home / "model.onnx", BYTE_BUDGET)
    data = home / "test_data_set_0"
    given = tuple(_stored_array(data / f"input_{k}.pb", end) for k, end in enumerate(model.graph.input))
    expected = tuple(_stored_array(data / f"output_{k}.pb", end) for k, end in enumerate(model.graph.output))
    return NodeTest(home.name, model, given, expected, rtol, atol)


def _stored_array(path: Path, end: onnx.ValueInfoProto) -> Array | None:
    """Return the array of the file `path` for the input or output `end`; None if that is no tensor, of a type that is
    not read, or stored in another one than is declared. FileError for a file that cannot be read.
    """
    if not end.type.HasField("tensor_type"):
        return None
    proto = TensorProto()
    try:
        proto.ParseFromString(bytes(read_bytes(path, BYTE_BUDGET)))
    except (DecodeError, OSError) as error:
        raise FileError(f"cannot read {path}: {error}") from error
    return _array(proto) if proto.data_type == end.type.tensor_type.elem_type else None
