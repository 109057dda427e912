"""specgrad supports: which queries and networks `verify` takes, in the words of the VNN-LIB standard (section 5.4)."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Annotated

import typer

from ..errors import need
from .shared.exit_codes import print_verdict
from .shared.output_files import Json

NEWEST_OPSET = 22  # opset: a newer one is read where the version of every operator in force is one that we know
REFUSED = {"DeformConv", "ReduceProd"}  # on data; a product of sizes is computed while importing
OTHER_FORMATS = {"ConvInteger", "DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger"}
OTHER_FORMATS |= {"QLinearConv", "QLinearMatMul", "QuantizeLinear"}  # integers: no proof of ours is about them


def onnx_opset_versions() -> list[str]:
    """Return the least and the largest supported opset."""
    need("onnx", "ONNX files need")
    from ..interop.onnx.read.model import OLDEST

    return [str(OLDEST), str(NEWEST_OPSET)]


def onnx_operators() -> list[str]:
    """Return the supported ONNX operators; each in every supported element type."""
    need("onnx", "ONNX files need")
    from ..interop.onnx.read.node import OPERATORS

    return sorted(set(OPERATORS) - REFUSED - OTHER_FORMATS)


def vnnlib_versions() -> list[str]:
    """Return the least and the largest VNN-LIB version that is read; 2.0 needs the package vnnlib."""
    return ["1.0", "1.0" if find_spec("vnnlib") is None else "2.0"]


def serialise_assignments() -> list[str]:
    """Return whether `verify` can serialise assignments: "true" or "false"."""
    return ["false" if find_spec("onnx") is None else "true"]


ANSWERS: dict[str, Callable[[], list[str]]] = {
    "onnx-opset-versions": onnx_opset_versions,
    "onnx-element-types": lambda: ["float32"],
    "onnx-operators": onnx_operators,
    "vnnlib-versions": vnnlib_versions,
    "hidden-node-theories": lambda: ["NH"],
    "multiple-input-output-theories": lambda: ["SIO", "MIO"],
    "multiple-network-theories": lambda: ["SNET", "MENET", "MINET", "MNET"],
    "multiple-node-comparison-theories": lambda: ["SNC", "MNC"],
    "arithmetic-complexity-theories": lambda: ["BND", "OUTC", "LIN"],
    "optimised-disjunctive-reasoning": lambda: ["false"],
    "serialise-assignments": serialise_assignments,
}


def _flag(about: str, *names: str) -> bool:
    """Return a boolean typer option with this help."""
    option: bool = typer.Option(*names, help=about)
    return option


def supports(
    opsets: Annotated[bool, _flag("The least and the largest ONNX opset.", "--onnx-opset-versions")] = False,
    types: Annotated[bool, _flag("Element types that proofs are sound for.", "--onnx-element-types")] = False,
    operators: Annotated[bool, _flag("ONNX operators, one per line.", "--onnx-operators")] = False,
    versions: Annotated[bool, _flag("The least and the largest version of VNN-LIB.", "--vnnlib-versions")] = False,
    hidden: Annotated[bool, _flag("NH: no hidden nodes.", "--hidden-node-theories")] = False,
    tensors: Annotated[
        bool,
        _flag(
            "SIO: one input, one output; MIO: several.",
            "--multiple-input-output-theories",
            "--multiple-inputs-output-theories",  # so the standard's own example has it
        ),
    ] = False,
    networks: Annotated[
        bool, _flag("SNET: one; MENET, MINET: equal, isomorphic; MNET: any.", "--multiple-network-theories")
    ] = False,
    comparisons: Annotated[
        bool, _flag("SNC: a comparison is about one node; MNC: or several.", "--multiple-node-comparison-theories")
    ] = False,
    arithmetic: Annotated[
        bool,
        _flag("BND: bounds; OUTC: outputs compared; LIN: linear constraints.", "--arithmetic-complexity-theories"),
    ] = False,
    disjunctions: Annotated[
        bool, _flag("Whether (or ...) is more than its disjunctive normal form.", "--optimised-disjunctive-reasoning")
    ] = False,
    serialise: Annotated[bool, _flag("Whether verify has that option.", "--serialise-assignments")] = False,
    as_json: Json = False,
) -> None:
    """What verify can answer, as VNN-LIB's tools ask it: one capability, a line per entry; --json without one: all."""
    first_flags = (opsets, types, operators, versions, hidden, tensors, networks, comparisons, arithmetic, disjunctions)
    chosen = [name for name, wanted in zip(ANSWERS, (*first_flags, serialise), strict=True) if wanted]
    if len(chosen) != 1 and not (as_json and not chosen):
        raise typer.BadParameter(f"give one of {', '.join(f'--{name}' for name in ANSWERS)}")
    answers = {name: ANSWERS[name]() for name in chosen or ANSWERS}
    print_verdict("supports", "ok", {"supports": answers}, as_json, lambda: print("\n".join(answers[chosen[0]])))
