"""What every command says of every model of the zoo, for how much: verdict, CPU seconds, GB, and what follows from it.

python benchmarks/zoo_table.py FOLDER                  asks what the record does not have yet, then writes the page
python benchmarks/zoo_table.py FOLDER silero resnet18  models whose names begin so
python benchmarks/zoo_table.py --page                  writes the page from the record, and prints the short table

FOLDER is where benchmarks/zoo_files.py makes the files; its head says which packages bring them. The record has a line
per question (benchmarks/zoo.jsonl), written when it is answered, so a run that was stopped goes on. Questions are asked
one after another, each by the command itself in a process of its own, with a limit of time and of memory.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from zoo_files import ENTRIES, Entry, Folder, Inputs, UnavailableError, entry, found, quieten

ROOT = Path(__file__).parents[1]
RECORD, PAGE = ROOT / "benchmarks" / "zoo.jsonl", ROOT / "docs" / "findings" / "zoo.md"
COMMANDS = ("show", "audit", "tolerance", "compare")
Row = dict[str, Any]


# --- one question -----------------------------------------------------------------------------------------------------


def ask(arguments: Sequence[str], limit: float, gigabytes: float) -> Row:
    """The answer of a program that prints one JSON object, what it cost, and what ended it.

    CPU seconds are those of the program and of the processes that it waited for; GB those of the largest of them. None
    of them may use more CPU seconds than `limit`, and all together last four times as long: the machine may be shared.
    """

    def bounded() -> None:
        size, last = int(gigabytes * 2**30), math.ceil(limit)
        resource.setrlimit(resource.RLIMIT_AS, (size, size))
        resource.setrlimit(resource.RLIMIT_CPU, (last, last + 10))

    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        start = time.monotonic()
        process = subprocess.Popen(arguments, stdout=out, stderr=err, start_new_session=True, preexec_fn=bounded)
        code, used = _wait(process.pid, 4 * limit)
        process.returncode = code  # waited for already
        seconds = time.monotonic() - start
        texts = [_content(file) for file in (out, err)]
    row = {"exit": code, "cpu": round(used.ru_utime + used.ru_stime, 1), "seconds": round(seconds, 1)}
    row["gb"] = round(used.ru_maxrss / 2**20, 2)
    return row | _read(*texts, ended=-code in (signal.SIGXCPU, signal.SIGTERM, signal.SIGKILL))


def _wait(pid: int, limit: float) -> tuple[int, resource.struct_rusage]:
    """The exit code and the usage; who is late is asked to end, and ten seconds later made to."""
    deadlines = [(limit, signal.SIGTERM), (limit + 10, signal.SIGKILL)]
    start = time.monotonic()
    while True:
        done, status, used = os.wait4(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status), used
        if deadlines and time.monotonic() - start > deadlines[0][0]:
            os.killpg(pid, deadlines.pop(0)[1])
        time.sleep(0.05)


def _content(file: Any) -> str:
    file.seek(0)
    return str(file.read().decode(errors="replace"))


def _read(out: str, err: str, *, ended: bool) -> Row:
    try:
        answer = json.loads(out)
    except ValueError:
        last = (err.strip().splitlines() or ["nothing was printed"])[-1]
        return {"verdict": "stopped by us" if ended else "no answer", "use": last[:200]}
    return {"verdict": str(answer.get("verdict")), "use": use(answer)}


def question(command: str, model: Path, other: Path | None, inputs: Sequence[Path], seconds: float) -> list[str]:
    """The command line for a model; `other` is the file that it is compared with."""
    options = [word for path in inputs for word in ("--input", str(path))]
    if command != "show":
        options += ["--seconds", f"{seconds:g}"]
    if command == "audit":
        options += ["--runtime", "onnxruntime"]
    files = [model] if other is None else [other, model]
    return [sys.executable, "-m", "specgrad", command, *map(str, files), *options, "--json"]


# --- what follows -----------------------------------------------------------------------------------------------------


def use(answer: Row) -> str:
    """What somebody who has the model can do with the answer, in a line, from the keys that it has."""
    words = {"show": _use_show, "audit": _use_audit, "tolerance": _use_tolerance, "compare": _use_compare}
    schema = str(answer.get("schema", "")).split("/")
    said = words[schema[1]](answer) if len(schema) == 3 and schema[1] in words else str(answer.get("reason", ""))
    return " ".join(said.split())[:240]


def _use_show(answer: Row) -> str:
    notes = [str(n) for n in answer.get("notes", ()) if str(n).startswith("not examined: ")]
    causes = Counter(n.split()[2] for n in notes if "reads a value" not in n)  # the others stand behind these
    without = ", ".join(f"{n} {name}" for name, n in causes.items())
    text = f"{without} not known, {len(notes)} nodes passed over" if notes else "read whole"
    return f"{text}: {answer.get('total', '')}"


def _use_audit(answer: Row) -> str:
    layers = answer.get("layers", ())
    kinds = Counter(str(layer.get("verdict")) for layer in layers)
    cover, run = answer.get("coverage") or {}, answer.get("run") or {}
    said = [f"layers: {', '.join(f'{n} {kind}' for kind, n in kinds.most_common()) or 'none'}"]
    if cover.get("layers") != cover.get("of_layers"):
        said.append(f"examined {cover.get('layers')} of {cover.get('of_layers')}")
    if run.get("usual"):
        said.append(f"the run differs by {run['difference'] / run['usual']:.2g} times what is usual (estimated)")
    odd = [layer for layer in layers if layer.get("verdict") == "unusual"][:1]
    for layer in filter(None, (answer.get("first_divergent"), *odd)):
        said.insert(0, f"look at {layer.get('layer')} ({layer.get('operator')}): {layer.get('detail')}")
    return "; ".join(said if kinds else [*said, *map(str, answer.get("notes", ()))])


def _use_tolerance(answer: Row) -> str:
    """The line to paste with its label; else why there is none."""
    estimated = answer.get("estimated") or {}
    if answer.get("atol") is not None:
        spread = max((_spread(o.get("exact")) for o in answer.get("outputs", ())), default=0.0)
        return _pasted(answer.get("rtol"), answer["atol"], "proven", spread)
    if answer.get("verdict") == "estimated" and estimated.get("atol") is not None:
        spread = max((float(o.get("spread") or 0) for o in estimated.get("outputs", ())), default=0.0)
        return _pasted(0, estimated["atol"], "estimated", spread)
    names = [f"nothing is proven of {name}" for name in answer.get("unbounded", ())]
    reasons = [*filter(None, [answer.get("reason")]), *answer.get("notes", ()), *names]
    return f"no number: {reasons[0] if reasons else 'no reason given'}"


def _pasted(rtol: Any, atol: Any, label: str, spread: float) -> str:
    line = f"assert_allclose(a, b, rtol={float(rtol or 0):.2g}, atol={float(atol):.2g})  # {label}"
    if not spread:
        return line
    share = float(atol) / spread
    worth = "" if share <= 0.01 else ": a coarse test" if share <= 1 else ": of no use in a test"
    return f"{line}; {share:.1g} of the outputs' spread{worth}"


def _spread(values: Any) -> float:
    """The largest output less the smallest; of one alone, its size."""
    cells = np.array(values, dtype=float).ravel()  # null, "inf": not finite
    cells = cells[np.isfinite(cells)]
    return float(np.ptp(cells) if cells.size > 1 else abs(cells).max(initial=0))


def _use_compare(answer: Row) -> str:
    if answer.get("verdict") == "same":
        return f"one may replace the other: {answer.get('method')}"
    points = answer.get("points") or [{}]
    apart = {k: points[0].get(k) for k in ("lower", "upper", "allowed", "within_rounding")}
    layers = ", ".join(answer.get("divergent_layers") or ())
    return ", ".join(f"{k} {v}" for k, v in apart.items() if v is not None) + (
        f"; they part at {layers}" if layers else ""
    )


# --- the run ----------------------------------------------------------------------------------------------------------


def rows_of(record: Path) -> dict[tuple[str, str], Row]:
    lines = record.read_text().splitlines() if record.exists() else ()
    return {(row["model"], row["command"]): row for row in map(json.loads, lines)}


def examine(folder: Folder, what: Entry, commands: Iterable[str], options: argparse.Namespace) -> None:
    """Ask about one model, and add a line to the record for each answer."""
    try:
        _make(folder, what)
    except UnavailableError as error:
        print(error, file=sys.stderr, flush=True)
        return
    with tempfile.TemporaryDirectory() as place:
        inputs = _arrays(Path(place), folder.inputs(what.name))
        for command in commands:
            row: Row = {"model": what.name, "command": command, "trained": what.trained, "origin": what.origin}
            row |= {"limit": options.seconds}
            try:
                other = _other(folder, what) if command == "compare" else None
                words = question(command, folder.model_path(what.name), other, inputs, options.seconds)
                row |= ask(words, options.limit, options.gigabytes) | ({"with": other.stem} if other else {})
            except UnavailableError as error:
                row |= {"exit": None, "verdict": "not asked", "use": str(error), "cpu": 0, "seconds": 0, "gb": 0}
            with options.record.open("a") as record:
                record.write(json.dumps(row) + "\n")
            print(_short(row), flush=True)


def _make(folder: Folder, what: Entry) -> None:
    """Make the file in a process of its own: what a child has before it begins would count as the command's memory."""
    if folder.model_path(what.name).exists():
        return
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        pool.submit(_made, folder.path, what.name).result()


def _made(folder: Path, name: str) -> None:
    quieten()
    found(Folder(folder), entry(name))


def _arrays(place: Path, inputs: Inputs) -> list[Path]:
    """A file per input, in the model's order."""
    paths = [place / f"{k}.npy" for k in range(len(inputs))]
    for path, x in zip(paths, inputs.values(), strict=True):
        np.save(path, x)
    return paths


def _other(folder: Folder, what: Entry) -> Path:
    """The file that a model is compared with: what it was made from; else what onnxsim makes of it."""
    other = entry(what.base or f"{what.name}+onnxsim")
    _make(folder, other)
    return folder.model_path(other.name)


def _short(row: Row) -> str:
    cost = f"{row['cpu']:7.1f} s {row['gb']:6.2f} GB"
    return f"{row['model']:34} {row['command']:10} {row['exit']!s:>4} {row['verdict']:16} {cost}  {row['use'][:120]}"


# --- the page ---------------------------------------------------------------------------------------------------------

INTRO = """# The zoo: what each command says of models that people have

{models} ONNX files, {trained} of them with trained weights out of pip packages; the others are torchvision's
architectures at the size they were made for, with random weights of a fixed seed, through both exporters, as float16,
bfloat16 and int8, and out of the tools that rewrite files. `python benchmarks/zoo_files.py --list` says where each is
from and what to install; inputs are pictures, lines of digits, a voice and a file's bytes, drawn by
`benchmarks/zoo_inputs.py`. On {versions}, one thread of two shared cores.

- *show* reads the file: are all operators known?
- *audit* judges every layer of ONNX Runtime on the input.
- *tolerance* says how far two correct executions may be apart.
- *compare* holds the file against the one it was made from, else against what onnxsim makes of it.

Each was asked by the command itself with `--seconds {limit}`. *CPU s* is the whole command's, *GB* that of its largest
process.

{counts}

Written by `python benchmarks/zoo_table.py FOLDER` from its record, [zoo.jsonl](../../benchmarks/zoo.jsonl).

| model | command | verdict | exit | CPU s | GB | what follows |
|---|---|---|--:|--:|--:|---|
"""


def page(rows: Sequence[Row], versions: str) -> str:
    """The page of a record."""
    models = {row["model"]: row["trained"] for row in rows}
    limit = f"{max((row['limit'] for row in rows), default=0):g}"
    head = INTRO.format(
        models=len(models), trained=sum(models.values()), versions=versions, limit=limit, counts=_counts(rows)
    )
    return head + "".join(map(_cells, rows))


def _counts(rows: Sequence[Row]) -> str:
    lines = []
    for command in COMMANDS:
        of = [row for row in rows if row["command"] == command]
        kinds = ", ".join(f"{n} {kind}" for kind, n in Counter(row["verdict"] for row in of).most_common())
        late = sum(row["seconds"] > 1.1 * row["limit"] + 5 for row in of)
        said = f"{kinds}; {late} ended later than 1.1 times the limit and 5 s" if of else "not asked yet"
        lines.append(f"- {command}, {len(of)} of {len(ENTRIES)} files: {said}")
    return "\n".join(lines)


def _cells(row: Row) -> str:
    name = row["model"] if row["command"] == COMMANDS[0] else ""
    text = (row["use"] + (f" (with {row['with']})" if "with" in row else "")).replace("|", "\\|").replace("<", "&lt;")
    code = "" if row["exit"] is None else row["exit"]
    cells = (name, row["command"], row["verdict"], code, f"{row['cpu']:.0f}", f"{row['gb']:.1f}", text)
    return f"| {' | '.join(map(str, cells))} |\n"


def ordered(rows: dict[tuple[str, str], Row]) -> list[Row]:
    return [rows[name, command] for name in ENTRIES for command in COMMANDS if (name, command) in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="where the files are, or are made; default: a new one")
    parser.add_argument("names", nargs="*", help="beginnings of names; default: all")
    parser.add_argument("--exact", action="store_true", help="names are whole names")
    parser.add_argument("--commands", default=",".join(COMMANDS), help="some of %(default)s")
    parser.add_argument("--seconds", type=float, default=60, help="what the commands are given (%(default)s)")
    parser.add_argument("--limit", type=float, default=300, help="CPU seconds after which we end one (%(default)s)")
    parser.add_argument("--gigabytes", type=float, default=12, help="memory of one process (%(default)s)")
    parser.add_argument("--record", type=Path, default=RECORD, help="another record; the page is then not written")
    parser.add_argument("--page", action="store_true", help="ask nothing")
    options = parser.parse_intermixed_args()
    folder = Folder(options.folder or Path(tempfile.mkdtemp(prefix="zoo")))
    for name in () if options.page else ENTRIES:
        if not options.names or (name in options.names if options.exact else name.startswith(tuple(options.names))):
            known = rows_of(options.record)
            examine(folder, entry(name), [c for c in options.commands.split(",") if (name, c) not in known], options)
    rows = ordered(rows_of(options.record))
    print("\n".join(map(_short, rows)) if options.page else _counts(rows))
    if options.record == RECORD:
        PAGE.write_text(
            page(rows, ", ".join(f"{p} {version(p)}" for p in ("specgrad", "onnx", "onnxruntime", "torch")))
        )
        subprocess.run([sys.executable, ROOT / "tools" / "make_what_works.py"], check=True)  # from this record too


if __name__ == "__main__":
    main()
