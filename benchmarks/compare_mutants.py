"""Pairs of small ONNX files, rewritten by tools and mutated: what `compare` says of each, and whether runtimes agree.

    python benchmarks/compare_mutants.py FOLDER --pairs 5000      pairs 0 to 4999, one line each in FOLDER/pairs.jsonl
    python benchmarks/compare_mutants.py FOLDER --table           the table of what is there, and nothing is run

Of every drawn network (mutant_networks.py) there are five pairs: with what a tool makes of it; with a mutation of it
(mutations.py), twice; with what the tool makes of a mutation; with a mutation of what the tool made. Judges are two
runtimes (mutant_judges.py). Wrong is: "same", and float64 values are more than 1e-9 of the largest output apart;
"same within rounding", and they are farther apart than when every constant is moved by 16 roundings; "differs" at an
input where float64 values are not as far apart as was said. A pair that has its line is not run again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import onnx
from onnx import ModelProto

from mutant_judges import Evidence, File, drawn_inputs, file_of, in_float32, witnessed
from mutant_networks import network
from mutations import mutated
from zoo_files import AFTER, TOOLS, quieten

KINDS = ("tool", "mutant", "mutant", "tool of a mutant", "mutant of the tool")
WORDS = ("same", "same within rounding", "differs", "cannot tell", "refused")


class NoPairError(Exception):
    """A pair that cannot be made: a tool refuses the file, or no mutation of it runs."""


# --- pairs ------------------------------------------------------------------------------------------------------------


def by_tool(tool: str, model: ModelProto, shapes: dict[str, Any]) -> ModelProto:
    inputs = drawn_inputs(shapes, 0, False)[0]
    try:
        return onnx.load_from_string(TOOLS[tool][0](model.SerializeToString(), inputs))
    except Exception as error:  # a tool's own
        raise NoPairError(f"{tool}: {type(error).__name__}") from error


def mutant(model: ModelProto, shapes: dict[str, Any], rng: Random) -> tuple[str, ModelProto]:
    """The first mutation that a runtime runs."""
    for _ in range(20):
        drawn = mutated(model, rng)
        if drawn is None:
            break
        name, other = drawn
        for end in other.graph.output:
            end.type.tensor_type.ClearField("shape")
        try:
            found = onnx.shape_inference.infer_shapes(other, strict_mode=True, data_prop=True)
            for mine, known in zip(other.graph.output, found.graph.output, strict=True):
                mine.CopyFrom(known)
            in_float32(other, drawn_inputs(shapes, 0, False)[:1])
        except Exception:  # a runtime's own: no such network
            continue
        return name, other
    raise NoPairError("no mutation")


def pair(number: int) -> tuple[str, str, File, File, dict[str, Any]]:
    """(the tool, the mutation, both files, shapes of inputs) of a pair by its number."""
    seed, k = divmod(number, len(KINDS))
    model, shapes = network(seed)
    rng = Random(f"pair {number}")
    tool = AFTER[seed % len(AFTER)]
    first = file_of(model)
    if KINDS[k] == "tool":
        return tool, "", first, file_of(by_tool(tool, model, shapes), first), shapes
    if KINDS[k] == "mutant of the tool":
        rewritten = file_of(by_tool(tool, model, shapes), first)
        if rewritten.source is not rewritten.model:
            raise NoPairError("operators of the runtime's own")
        name, other = mutant(rewritten.model, shapes, rng)
        return tool, name, rng.choice((first, rewritten)), file_of(other), shapes
    name, other = mutant(model, shapes, rng)
    if KINDS[k] == "mutant":
        return "", name, first, file_of(other), shapes
    return tool, name, first, file_of(by_tool(tool, other, shapes), file_of(other)), shapes


def line_of(number: int, seconds: float) -> dict[str, Any]:
    """The line of one pair: what was compared, the verdict, CPU seconds, what float64 says, and `wrong` if it is."""
    line: dict[str, Any] = {"pair": number, "kind": KINDS[number % len(KINDS)]}
    try:
        tool, mutation, a, b, shapes = pair(number)
    except NoPairError as error:
        return line | {"verdict": "no pair", "why": str(error)}
    line |= {"tool": tool, "mutation": mutation}
    before = time.process_time()
    done, word, why = compared(a, b, seconds)
    line |= {"verdict": word, "why": why[:200], "cpu": round(time.process_time() - before, 2)}
    return line | judged(a, b, shapes, number, done, word)


def compared(a: File, b: File, seconds: float) -> tuple[Any, str, str]:
    from specgrad.check import compare
    from specgrad.errors import SpecgradError

    try:
        done = compare(a.model, b.model, seconds=seconds)
    except SpecgradError as error:
        return None, "refused", f"{type(error).__name__}: {error}"
    return done, done.verdict, done.method


def judged(a: File, b: File, shapes: dict[str, Any], seed: int, done: Any, word: str) -> dict[str, Any]:
    try:
        seen = Evidence(a, b, drawn_inputs(shapes, seed, not (a.jumps or b.jumps)))
        if seen.judges_disagree():
            return {"judge": "judges disagree"}
        found: dict[str, Any] = {"apart": float(f"{seen.share:.2g}")}
        if word == "same":
            return found | ({} if seen.same() else {"wrong": "float64 values differ"})
        if word == "same within rounding":
            return found | ({} if seen.within_rounding() else {"wrong": "more than rounding of constants"})
        if word == "differs" and done.points:
            said = witnessed(a, b, done.points[-1], list(shapes))
            return found | {"witness": said} | ({"wrong": "no such difference"} if said == "denied" else {})
        if word == "differs" and seen.share < float("inf"):
            return found | {"wrong": "no such difference"}
    except Exception as error:  # a runtime's own
        return {"judge": f"{type(error).__name__}: {str(error)[:150]}"}
    return found


# --- the run ----------------------------------------------------------------------------------------------------------


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for text in path.read_text().splitlines()] if path.exists() else []


def missing(path: Path, count: int) -> Iterator[int]:
    known = {line["pair"] for line in lines_of(path)}
    yield from (k for k in range(count) if k not in known)


def work(path: Path, count: int, seconds: float) -> None:
    """Every missing pair; the one that is being run is on record, for a tool that ends the process."""
    quieten()
    begun = path.with_name("begun")
    for number in missing(path, count):
        begun.write_text(str(number))
        line = line_of(number, seconds)
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")


def run(path: Path, count: int, seconds: float) -> None:
    """Worker after worker, as long as pairs are missing: a pair that ended its worker has a line that says so."""
    given = [str(path.parent), "--pairs", str(count), "--seconds", str(seconds), "--worker"]
    while next(missing(path, count), None) is not None:
        ended = subprocess.run([sys.executable, __file__, *given], stdout=subprocess.DEVNULL, check=False).returncode
        number = int(path.with_name("begun").read_text())
        if ended and number in missing(path, count):
            with path.open("a") as file:
                file.write(json.dumps({"pair": number, "verdict": "no pair", "why": f"ended by {ended}"}) + "\n")


# --- the table --------------------------------------------------------------------------------------------------------


def counts(rows: dict[str, Counter[str]], first: str) -> list[str]:
    lines = [f"{first:28}" + "".join(f"{word.replace('same within ', ''):>13}" for word in WORDS)]
    return lines + [f"{name:28}" + "".join(f"{row[word]:13}" for word in WORDS) for name, row in rows.items()]


def table(lines: list[dict[str, Any]]) -> str:
    run = [line for line in lines if line["verdict"] != "no pair"]
    by: dict[str, dict[str, Counter[str]]] = {key: defaultdict(Counter) for key in ("kind", "tool", "mutation")}
    for line in run:
        by["kind"][line["kind"]][line["verdict"]] += 1
        by["tool"][line["tool"] or "none"][line["verdict"]] += 1
        by["mutation"][line["mutation"] or "none"][line["verdict"]] += 1
    seconds = sorted(line["cpu"] for line in run)
    unjudged = [line for line in run if "judge" in line]
    wrong = [line for line in run if "wrong" in line]
    open_ones = [line for line in run if line["verdict"] == "cannot tell"]
    shown = sum(line.get("apart", 0) > 1e-6 for line in open_ones)
    text = [f"{len(run)} pairs, {len(wrong)} wrong; {len(lines) - len(run)} more were not made", ""]
    for key, rows in by.items():
        text += [*counts(dict(sorted(rows.items())), key), ""]
    witnesses = Counter(line["witness"] for line in run if "witness" in line)
    text += ["witnesses in float64: " + ", ".join(f"{word} {n}" for word, n in sorted(witnesses.items()))]
    text += [f"cannot tell: {len(open_ones)}; in {shown} of them float64 values are over 1e-6 apart"]
    text += [f"not judged, as judges disagree or fail: {len(unjudged)}"]
    text += [f"CPU seconds of compare: {sum(seconds):.0f}, median {seconds[len(seconds) // 2]}, at most {seconds[-1]}"]
    return "\n".join([*text, *(f"wrong: {json.dumps(line)}" for line in wrong)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="where the lines are, or are written")
    parser.add_argument("--pairs", type=int, default=5000)
    parser.add_argument("--seconds", type=float, default=10, help="the limit of each comparison, by the clock")
    parser.add_argument("--table", action="store_true", help="print the table of what is there")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    path = Path(options.folder) / "pairs.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    if options.worker:
        return work(path, options.pairs, options.seconds)
    if not options.table:
        run(path, options.pairs, options.seconds)
    print(table(lines_of(path)))
    return None


if __name__ == "__main__":
    main()
