"""specgrad verify: a VNN-LIB solver's command line (section 5 of the standard, https://www.vnnlib.org).

The first line of stdout is the answer; after sat, the assignment follows. Everything else is said on stderr.

    unsat       no input satisfies the query, in any execution of the class: exit code 0
    sat         an input does, run in float32 on PyTorch, and on ONNX Runtime where that is installed: 1
    unknown     neither could be shown: 2
    timed-out   nor within the time: 2
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from specgrad.atomic_files import write_whole
from specgrad.cli.shared import console
from specgrad.cli.shared import json_parts as j
from specgrad.cli.shared.exit_codes import CODES, print_quietly, print_verdict
from specgrad.cli.shared.options import Execution
from specgrad.cli.shared.output_files import (
    WORDS,
    Counterexample,
    Force,
    Json,
    assigned_tensors,
    assignment_text,
    check_counterexample,
    check_file,
    check_folder,
    is_unconfirmed,
    write_counterexample,
    writing,
)
from specgrad.errors import ParameterError, need, printable

REAL = "the query declares real cells; unsat is about the float32 numbers that they are rounded to"
DISAGREES = "PyTorch computes a counterexample that ONNX Runtime does not confirm"
Networks = Annotated[
    list[str] | None,
    typer.Option("--network", metavar="NAME=FILE", help="The ONNX file of a network of the query; may be repeated."),
]


commands = typer.Typer(rich_markup_mode=None)


@commands.command(epilog="Example: specgrad verify query.vnnlib --network N=net.onnx --timeout 60")
def verify(
    query: Annotated[Path, typer.Argument(help="A VNN-LIB file, 1.0 or 2.0, or such a file compressed (.gz).")],
    network: Networks = None,
    timeout: Annotated[float, typer.Option(min=0, help="Seconds for the query, once the program is loaded.")] = 60,
    serialise: Annotated[
        Path | None,
        typer.Option("--serialise-assignments", help="After sat: a TensorProto file per tensor, into this folder."),
    ] = None,
    counterexample: Counterexample = None,
    execution: Execution = "fused",
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Answer a VNN-LIB query as its standard asks solvers to: unsat, sat with an assignment, unknown or timed-out."""
    need("torch", "verify needs")
    from specgrad.bounds.search.query import certify_query
    from specgrad.properties.assignment import read_declarations
    from specgrad.rounding import Arithmetic

    import_module("torch")  # outside the clock
    start = time.monotonic()
    if serialise is not None:
        need("onnx", "serialised assignments need")
    check_folder(serialise)
    check_counterexample(counterexample, force)
    if not query.is_file():
        raise typer.BadParameter(f"no file {query}")
    files = network_files(query, network or [])
    _check_tensor_files(serialise, query, force)
    limits = {"seconds": timeout - (time.monotonic() - start), "arithmetic": Arithmetic(execution=execution)}
    verdict = _search_within(partial(certify_query, query, files), limits, as_json)
    answer, reason = _answer(verdict, time.monotonic() - start >= timeout)
    values = assigned_tensors(verdict, query) if answer == "sat" else ()
    data = _as_json(query, files, verdict, reason, values, time.monotonic() - start)
    if answer == "unsat" and any(t.kind == "real" for n in read_declarations(query) for t in (*n.inputs, *n.outputs)):
        data["notes"] = [*data.get("notes", ()), REAL]
    print_verdict("verify", answer, data, as_json, lambda: _show(answer, values if serialise is None else (), query))
    for said in () if as_json else [reason, *data.get("notes", ())]:
        if said:
            print_quietly(sys.stderr, printable(f"specgrad: {said}"))
    if answer == "sat":
        write_counterexample(counterexample, verdict, query)
        _write_tensor_files(serialise, values)
    raise typer.Exit(CODES[answer])


def network_files(query: Path, texts: Sequence[str]) -> dict[str, str]:
    """Return the ONNX file of every declared network that does not equal another, by name, from --network `texts`.

    BadParameter if one is missing, given twice or not declared; ParameterError if there is no such file. `query` is the
    VNN-LIB file.

    VNN-LIB 1.0 names no network, so any name will do; where one file is needed, its name alone will do too.
    """
    from specgrad.properties.assignment import read_declarations

    networks = read_declarations(query)
    needed = [n.name for n in networks if not n.same_as]
    files: dict[str, str] = {}
    for text in texts:
        name, equals, file = text.partition("=")
        if not equals or (Path(text).is_file() and name not in needed):  # a path may hold an equals sign
            name, file = (needed[0] if len(needed) == 1 else "N" if not networks else ""), text
        if not name:
            raise typer.BadParameter(f"give --network NAME=FILE for each of {', '.join(needed)}; got {text}")
        if name in files:
            raise typer.BadParameter(f"network {name} has two files: {files[name]} and {file}")
        files[name] = file
    if not networks and len(files) != 1:
        raise typer.BadParameter(f"a VNN-LIB 1.0 query has one network: give --network FILE once; got {len(files)}")
    for name in files if networks else ():
        if name not in needed:
            raise typer.BadParameter(f"the query declares no network {name} to be given; it has {', '.join(needed)}")
    missing = [name for name in needed if name not in files]
    if missing:
        raise typer.BadParameter(f"no file for network {missing[0]}: give --network {missing[0]}=FILE")
    for file in files.values():
        if not Path(file).is_file():
            raise ParameterError("verify", f"no file {file}")
    return files


class TimeIsUpError(BaseException):
    """Raised by `alarm`; no Exception, so that nothing on the way takes it for an error of its own."""


@contextmanager
def alarm(seconds: float) -> Iterator[None]:
    """Context manager that raises TimeIsUpError in its block after `seconds`, on systems that have interval timers."""
    if not hasattr(signal, "setitimer"):
        yield
        return

    def ring(*_: Any) -> None:
        raise TimeIsUpError

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _search_within(search: Any, limits: dict[str, Any], as_json: bool) -> Any:
    """Return the verdict of `search(**limits, progress=...)`, or None if it did not end shortly after its time limit.

    `limits` holds seconds, taken as 0 if negative. Progress is shown on stderr, unless `as_json`.
    """
    seconds = max(0.0, limits["seconds"])
    try:
        with alarm(5 + 1.1 * seconds), console.progress(as_json) as step:
            return search(**{**limits, "seconds": seconds}, progress=step)
    except TimeIsUpError:
        return None


def _answer(verdict: Any, late: bool) -> tuple[str, str]:
    """Return the word of the standard for a verdict (None: time was up), and the reason for it; `late` if the time is
    over now.
    """
    if verdict is None:
        return "timed-out", "the time ended before the search did"
    if is_unconfirmed(verdict):
        return "unknown", DISAGREES
    if verdict.verdict != "unknown":
        return WORDS[verdict.verdict], verdict.reason
    return ("timed-out" if late else "unknown"), verdict.reason or "nothing was proven, and no counterexample found"


def _show(answer: str, values: Sequence[Any], query: Path) -> None:
    """Print the answer to a query and, after sat, the assignment `values`."""
    print(answer)
    if values:
        print(assignment_text(values, query), end="")


def _as_json(
    query: Path, files: Mapping[str, str], verdict: Any, reason: str, values: Sequence[Any], seconds: float
) -> dict[str, Any]:
    """Return the answer as JSON data; after sat with its assignment, `values`.

    `verdict` is None if time was up; `reason` is left out if empty. `query` is the VNN-LIB file, `files` are those of
    the networks by name; it took `seconds`.
    """
    data: dict[str, Any] = {"query": str(query), "networks": dict(files), "seconds": seconds}
    data["problems"] = 0 if verdict is None else verdict.problems
    data["deployment"] = {} if verdict is None else verdict.deployment
    if verdict is not None and verdict.notes:
        data["notes"] = list(verdict.notes)
    if reason:
        data["reason"] = reason
    if verdict is not None and verdict.unknown is not None:
        data["unknown"] = verdict.unknown.to_json()
    if values:
        data["confirmed"] = list(verdict.counterexample.confirmed)
        data["asked"] = [run.to_json() for run in verdict.counterexample.runs]
        data["assignment"] = [
            {"name": a.tensor.name, "type": a.tensor.kind, "shape": a.tensor.shape, "values": a.cells.tolist()}
            | ({"point": a.texts()} if a.is_rounded() else {})
            for a in values
        ]
    return data


# --- serialised assignments -------------------------------------------------------------------------------------------


def _check_tensor_files(folder: Path | None, query: Path, force: bool) -> None:
    """Raise OSError if a tensor file that a query would write into `folder` exists and is foreign, unless `force`."""
    from specgrad.properties.assignment import read_declarations

    if folder is None or not folder.is_dir():
        return
    for name in [t.name for n in read_declarations(query) for t in (*n.inputs, *n.outputs)] or ["X", "Y"]:
        check_file(folder / f"{name}.pb", _is_tensor_file, force)


def _is_tensor_file(data: bytes) -> bool:
    """Return whether the bytes `data` are a TensorProto."""
    from onnx import TensorProto

    try:
        return bool(TensorProto.FromString(data).data_type)
    except Exception:
        return False


def _write_tensor_files(folder: Path | None, values: Sequence[Any]) -> None:
    """Write one TensorProto file per assigned tensor of `values` into `folder`; nothing if it is None."""
    if folder is None:
        return
    from onnx import numpy_helper

    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for a in values:
            data = numpy_helper.from_array(a.cells.reshape(a.tensor.shape), a.tensor.name).SerializeToString()
            write_whole(folder / f"{a.tensor.name}.pb", data)


# --- what verify can answer (section 5.4 of the standard) -------------------------------------------------------------

NEWEST_OPSET = 22  # opset: a newer one is read where the version of every operator in force is one that we know
REFUSED = {"CumProd", "DeformConv", "NonMaxSuppression", "ReduceProd"}  # on data: no meaning, or no bounds
OTHER_FORMATS = {"ConvInteger", "DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger"}
OTHER_FORMATS |= {"QLinearConv", "QLinearMatMul", "QuantizeLinear"}  # integers: no proof of ours is about them


def onnx_opset_versions() -> list[str]:
    """Return the least and the largest supported ONNX opset, two numbers as text."""
    need("onnx", "ONNX files need")
    from specgrad.interop.onnx.read.model import OLDEST

    return [str(OLDEST), str(NEWEST_OPSET)]


def onnx_operators() -> list[str]:
    """Return the supported ONNX operators; each in every supported element type."""
    need("onnx", "ONNX files need")
    from specgrad.interop.onnx.read.convert_node import all_operators

    return sorted(set(all_operators()) - REFUSED - OTHER_FORMATS)


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
    """Return a boolean typer option of these names, `about` as its help."""
    option: bool = typer.Option(*names, help=about)
    return option


@commands.command(epilog="Example: specgrad verify supports --onnx-operators")
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


# --- JSON -------------------------------------------------------------------------------------------------------------

SCHEMAS = {
    "verify": j.command_schema(
        "verify",
        "the answer to a VNN-LIB query",
        j.choice("unsat", "sat", "unknown", "timed-out"),
        query=j.text("the file, as it was given"),
        networks=j.map_of(j.text("its file"), "by name"),
        seconds=j.number("spent on the query"),
        problems=j.count("subproblems of the search"),
        deployment=j.DEPLOYMENT,
        optional={
            "notes": j.NOTES,
            "reason": j.text("why there is no better answer"),
            "unknown": j.UNKNOWN,
            "confirmed": j.list_of(j.text("an engine"), "where the assignment was run, and satisfies the query"),
            "asked": j.ASKED,
            "assignment": j.list_of(
                j.object_of(
                    "one tensor",
                    name=j.text("as the query declares it"),
                    type=j.text("its element type, in the words of VNN-LIB"),
                    shape=j.SHAPE,
                    values=j.list_of(j.number("a cell"), "in float32, in row-major order"),
                    optional={"point": j.list_of(j.text("a decimal"), "where values are rounded: the exact cells")},
                ),
                "in the order of the declarations; cells of VNN-LIB 1.0 are the tensors X and Y",
            ),
        },
    ),
    "supports": j.command_schema(
        "supports",
        "what verify can answer",
        j.choice("ok"),
        supports=j.map_of(j.list_of(j.text("a line"), "as it is printed"), "by capability of the VNN-LIB standard"),
    ),
}
