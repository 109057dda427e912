"""Models before and after toolchains: what `compare` says of each pair, and in how many CPU seconds.

    python benchmarks/compare_pairs.py FOLDER                   all pairs, one line each in FOLDER/compare_pairs.jsonl
    python benchmarks/compare_pairs.py FOLDER resnet ocr        of files whose names begin so
    python benchmarks/compare_pairs.py FOLDER --table           the table of what is there, and nothing is run

Files are the zoo's (benchmarks/zoo_files.py), made where they are missing. A pair that has its line is not run again,
so the program goes on where it was stopped; delete the file to begin anew. Each pair is a process of its own: the
seconds are those of `specgrad compare` alone, its imports included.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import zoo_files
from zoo_files import Folder, UnavailableError, entry, found, quieten

TRAINED = ("silero-openvino", "magika", "ocr-v2-cls", "orientation", "ocr-v4-det", "ocr-v4-rec", "ocr-v6-rec")
TRAINED += ("nudenet", "ddddocr-det", "ddddocr")
RANDOM = ("mobilenet_v3_small", "resnet18", "regnet_y_400mf", "lraspp_mobilenet_v3_large", "efficientnet_b0")
RANDOM += ("densenet121", "resnet50", "convnext_tiny", "swin_t", "vit_b_16")
MODELS = (*TRAINED, *RANDOM)
TOOLS = zoo_files.AFTER
OTHERS = tuple(
    f"{base}{form}"
    for base, forms in (
        ("ocr-v2-cls", ("+half", "+int8")),
        ("mobilenet_v3_small", ("-legacy", "-float16", "+int8")),
        ("resnet18", ("-legacy", "-float16", "+int8")),
        ("vit_b_16", ("-legacy",)),
    )
    for form in forms
)
"""What other exporters and formats make of a model: these differ, or are the same within rounding at most."""
SETTLED = ("same", "same within rounding", "differs")


def base_of(name: str) -> str:
    """The model that a file is another form of."""
    return next(m for m in sorted(MODELS, key=len, reverse=True) if name.startswith(m))


def compared(folder: Folder, name: str, seconds: float) -> dict[str, Any]:
    """The line of one pair: a model, and its form `name`; `seconds` is the command's limit."""
    line: dict[str, Any] = {"model": base_of(name), "form": name[len(base_of(name)) :]}
    try:
        found(folder, entry(base_of(name)))
        found(folder, entry(name))
    except UnavailableError as error:
        return line | {"verdict": "not made", "why": str(error)}
    files = [str(folder.model_path(n)) for n in (base_of(name), name)]
    given = str(folder.path / f"{base_of(name)}.npz")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    call = [sys.executable, "-m", "specgrad", "compare", *files, "--input", given, "--seconds", str(seconds), "--json"]
    try:
        ran = subprocess.run(call, capture_output=True, text=True, timeout=2 * seconds + 60, check=False)
        done = json.loads(ran.stdout)
    except (subprocess.TimeoutExpired, ValueError) as error:
        done = {"verdict": "not ended", "reason": f"{type(error).__name__}"}
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    line |= {"verdict": done["verdict"], "why": done.get("method") or done.get("reason", "")}
    line |= {"cpu": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1)}
    weights = done.get("weights")
    return line | ({} if weights is None else {"units": weights["units"], "roundings": weights["roundings"]})


def lines_of(path: Path) -> dict[str, dict[str, Any]]:
    """The lines that are there, by the name of the form."""
    lines = [json.loads(text) for text in path.read_text().splitlines()] if path.exists() else []
    return {line["model"] + line["form"]: line for line in lines}


def table(lines: dict[str, dict[str, Any]]) -> str:
    """A row per model with a word per toolchain, then the counts."""
    words = {"same within rounding": "rounding", "cannot tell": "unknown", "error": "refused"}
    rows = [f"{'model':28}" + "".join(f"{tool:>16}" for tool in TOOLS)]
    for model in MODELS:
        cells = [lines.get(f"{model}+{tool}") for tool in TOOLS]
        said = ["-" if c is None else f"{words.get(c['verdict'], c['verdict'])} {c.get('cpu', 0):.0f}" for c in cells]
        rows.append(f"{model:28}" + "".join(f"{cell:>16}" for cell in said))
    run = [lines[name] for model in MODELS for tool in TOOLS if (name := f"{model}+{tool}") in lines]
    run = [line for line in run if line["verdict"] != "not made"]
    settled = sum(line["verdict"] in SETTLED for line in run)
    counts = ", ".join(f"{word} {n}" for word, n in Counter(line["verdict"] for line in run).most_common())
    rows += ["", f"{len(run)} of {len(MODELS) * len(TOOLS)} pairs: {settled} settled; {counts}"]
    rows += [f"CPU seconds: at most {max((line.get('cpu', 0) for line in run), default=0)}"]
    rows += ["", "other exporters and formats:"]
    rows += [f"{n:28} {lines[n]['verdict']}, {lines[n].get('cpu', 0):.0f} s" for n in OTHERS if n in lines]
    open_ones = [line for line in lines.values() if line["verdict"] not in SETTLED]
    rows += ["", "not settled:", *(f"{x['model']}{x['form']}: {x['verdict']}: {x['why'][:150]}" for x in open_ones)]
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="where the zoo's files are, or are made")
    parser.add_argument("names", nargs="*", help="beginnings of names of models; default: all")
    parser.add_argument("--table", action="store_true", help="print the table of what is there")
    parser.add_argument("--seconds", type=float, default=100, help="the limit of each comparison, by the clock")
    options = parser.parse_args()
    quieten()
    path = Path(options.folder) / "compare_pairs.jsonl"
    if not options.table:
        asked = (*(f"{model}+{tool}" for model in MODELS for tool in TOOLS), *OTHERS)
        for name in asked:
            if name in lines_of(path) or (options.names and not name.startswith(tuple(options.names))):
                continue
            line = compared(Folder(Path(options.folder)), name, options.seconds)
            with path.open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(json.dumps(line), flush=True)
    print(table(lines_of(path)))


if __name__ == "__main__":
    main()
