"""A folder of test vectors: ONNX files, .npy arrays and JSON that need no library of ours to be used."""

from __future__ import annotations

import errno
import hashlib
import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from specgrad.atomic_files import write_whole

from ... import __version__
from ...errors import ParameterError
from ...rounding import Arithmetic
from ...scalar import Array
from .case import OPSET, TYPES, EquivalenceClass, OperatorClasses, VectorCase, tag
from .elementwise import CELLS
from .expected import NO_FLUSH, ExpectedOutput, answers
from .layout import LAYOUT
from .model import model
from .products import PRODUCTS
from .quantised import QUANTISED
from .schema import FORMAT, INDEX
from .windows import WINDOWS

OPERATORS: dict[str, OperatorClasses] = {c.operator: c for c in (*WINDOWS, *QUANTISED, *LAYOUT, *CELLS, *PRODUCTS)}
SOURCE = "ONNX safety-related profile, guidelines/test.md @0eddfae: classes by kind, tags E_<op>_<type>_<zone>_<nnnn>"
INCOMPLETE = (
    "Passing all of these vectors does not guarantee conformance with any specification: classes rest on a model of "
    "likely faults, each is tried by a few cases, and the classes under `missing` by none. Demonstrating conformance "
    "remains the responsibility of the engineer who signs."
)
FORMAT_NOTES = {
    "float64": "cases of type DOUBLE: the same with float64 in place of float32",
    "float16": "cases of type FLOAT16: results stored in float16, sums and products in float32 or wider",
    "integers": "cases of integer types: sums in int32, exact; scales and quotients in the type of the scale",
    "functions": "exp, log, tanh, sigmoid, powers: errors declared from measurements of common libraries",
}
"""What the sentences about float32 leave out."""
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Vector:
    """A case with its tag, type, class and expected outputs.

    kind is the dtype's name, zone the equivalence class, answers the expected outputs by name.
    """

    tag: str
    kind: str
    zone: EquivalenceClass
    case: VectorCase
    answers: dict[str, ExpectedOutput]


@dataclass(frozen=True)
class Pack:
    """Summary of a written folder: numbers of cases, cells and open cells, and the classes of each operator.

    seed         from which all cases were drawn
    operators    ONNX operator -> its classes, with their numbers of cases
    open         cells of which no bound is known
    executions   what the tolerances are about, in sentences by topic
    """

    folder: str
    seed: int
    operators: dict[str, Any] = field(default_factory=dict)
    cases: int = 0
    cells: int = 0
    open: int = 0
    executions: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON data, by name, and `incompleteness`: what a pack does not show."""
        return {**vars(self), "incompleteness": INCOMPLETE}


def chosen(names: Sequence[str] | None) -> list[OperatorClasses]:
    """Return the classes of these operators, by ONNX name; of all if None. ParameterError for unknown names."""
    unknown = [n for n in names or () if n not in OPERATORS]
    if unknown:
        raise ParameterError("vectors", f"no classes of {unknown[0]!r} are known; there are {', '.join(OPERATORS)}")
    return [OPERATORS[n] for n in dict.fromkeys(names or OPERATORS)]


def vectors(classes: OperatorClasses, seed: int = 0, arithmetic: Arithmetic = NO_FLUSH) -> Iterator[Vector]:
    """Yield every case of an operator's `classes` with its expected outputs, for `arithmetic`; equal for equal seeds.

    >>> [v.tag for v in vectors(OPERATORS["ConvInteger"])][:2]
    ['E_CONVINTEGER_UINT8_FUNC_0001', 'E_CONVINTEGER_UINT8_FUNC_0002']
    """
    for zone in classes.zones:
        for kind in zone.types:
            rng = np.random.default_rng([seed, crc32(f"{classes.operator} {kind} {zone.word}".encode())])
            for number, case in enumerate(zone.draw(rng, TYPES[kind]), 1):
                name = tag(classes.operator, kind, zone.word, number)
                yield Vector(name, kind, zone, case, answers(case, arithmetic))


def write_pack(
    folder: Path,
    operators: Sequence[str] | None = None,
    *,
    seed: int = 0,
    flush: bool = False,
    force: bool = False,
    progress: Progress | None = None,
) -> Pack:
    """Write the vectors of these operators into a folder, the index last.

    FileExistsError if it holds files, unless `force`.

    seed    other numbers in the same classes
    flush   radii also allow subnormal numbers to count as zero
    force   write into a folder that holds files
    progress  is told (what, done, total)
    """
    records = chosen(operators)
    if folder.exists() and any(folder.iterdir()) and not force:
        raise FileExistsError(errno.EEXIST, "is not empty; --force writes into it", str(folder))
    arithmetic = replace(NO_FLUSH, flush=flush)
    pack = Pack(str(folder), seed, executions={**arithmetic.deployment, **FORMAT_NOTES})
    cases: list[dict[str, Any]] = []
    for i, record in enumerate(records):
        if progress is not None:
            progress(record.operator, i, len(records))
        made = [_write_case(folder, vector) for vector in vectors(record, seed, arithmetic)]
        cases += made
        pack.operators[record.operator] = coverage(record, made)
    index = {
        "format": FORMAT,
        "specgrad": __version__,
        "seed": seed,
        "opset": OPSET,
        "source": SOURCE,
        "complete": False,
        "incompleteness": INCOMPLETE,
        "executions": pack.executions,
        "operators": pack.operators,
        "cases": cases,
    }
    here = Path(__file__).parent
    for name in ("README.txt", "run_vectors.py"):
        write_whole(folder / name, (here / name).read_bytes())
    write_whole(folder / "schema.json", _json_text(INDEX))
    write_whole(folder / "index.json", _json_text(index))
    sizes = [(int(np.prod(o["shape"])), o["open"]) for c in cases for o in c["outputs"]]
    return replace(pack, cases=len(cases), cells=sum(n for n, _ in sizes), open=sum(n for _, n in sizes))


def coverage(record: OperatorClasses, cases: Sequence[dict[str, Any]] | None = None) -> dict[str, Any]:
    """Return JSON data about the classes of an operator: how many are `covered` by some of `cases` (index entries),
    `listed`, and `missing`.

    `classes` has an object each: type, zone, kind, text, and how many cases; 0 if none are given.
    """
    rows: list[dict[str, Any]] = [
        {"type": kind, "zone": z.word, "kind": z.kind, "text": z.text, "cases": _count_cases(cases or (), kind, z.word)}
        for z in record.zones
        for kind in z.types
    ]
    return {
        "covered": sum(row["cases"] > 0 for row in rows),
        "listed": len(rows) + len(record.missing),
        "classes": rows,
        "missing": dict(record.missing),
    }


def _count_cases(cases: Sequence[dict[str, Any]], kind: str, word: str) -> int:
    """Return how many of `cases`, entries of index.json, have the "type" `kind` and the "zone" `word`."""
    return sum((c["type"], c["zone"]) == (kind, word) for c in cases)


def _json_text(data: Any) -> str:
    """Return `data` as JSON text; ValueError for NaN and infinities."""
    return json.dumps(data, indent=1, allow_nan=False) + "\n"


def _npy_bytes(a: Array) -> bytes:
    """Return an array as the bytes of a .npy file, version 1.0."""
    file = io.BytesIO()
    np.lib.format.write_array(file, np.ascontiguousarray(a).reshape(a.shape), version=(1, 0), allow_pickle=False)
    return file.getvalue()


def _write_case(folder: Path, vector: Vector) -> dict[str, Any]:
    """Write the files of one case below `folder`, and return its entry in the index.

    The entry names the case, its folder, its inputs and outputs with file, type and shape, and the SHA-256 of every
    file.
    """
    case, place = vector.case, f"{vector.case.operator}/{vector.tag}"
    shapes = {name: a.value.shape for name, a in vector.answers.items()}
    files = {"model.onnx": model(case, shapes).SerializeToString(deterministic=True)}
    files["exact.json"] = _json_text({name: a.exact for name, a in vector.answers.items()}).encode()
    inputs, outputs = [], []
    for i, (name, array) in enumerate(case.fed.items()):
        files[f"input_{i}.npy"] = _npy_bytes(array)
        inputs.append({"name": name, "file": f"input_{i}.npy", "dtype": array.dtype.name, "shape": [*array.shape]})
    for i, (name, a) in enumerate(vector.answers.items()):
        files[f"expected_{i}.npy"], files[f"radius_{i}.npy"] = _npy_bytes(a.value), _npy_bytes(a.radius)
        outputs.append(
            {
                "name": name,
                "expected": f"expected_{i}.npy",
                "radius": f"radius_{i}.npy",
                "dtype": a.value.dtype.name,
                "shape": [*a.value.shape],
                "open": a.open,
                "why": a.why,
            }
        )
    (folder / place).mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / place / name).write_bytes(
            data
        )  # thousands of small files: the index, which comes last, is the record
    return {
        "tag": vector.tag,
        "operator": case.operator,
        "type": vector.kind,
        "zone": vector.zone.word,
        "folder": place,
        "inputs": inputs,
        "outputs": outputs,
        "zero_signs": case.signs,
        "note": case.note,
        "sha256": {name: hashlib.sha256(data).hexdigest() for name, data in files.items()},
    }
