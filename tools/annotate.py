"""What specgrad audit or compare said, as annotations of a GitHub workflow, and as a table of its summary.

python tools/annotate.py audit.json model.onnx

Annotations go to standard output, the table to the file that GITHUB_STEP_SUMMARY names. The exit code is 0: that of the
verdict is the command's own. A file without a verdict, of a command that ended in an error, is annotated as one.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from specgrad.html_page import tone_of

LEVELS = {"bad": "error", "open": "warning"}
MOST = 10  # annotations that GitHub shows per step


def command(level: str, file: str, title: str, text: str) -> str:
    """Return a line that GitHub reads as an annotation, with what would end it escaped."""
    data = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    short = lambda s: s.replace("%", "%25").replace("\r", "").replace("\n", " ").replace(":", "%3A").replace(",", "%2C")
    return f"::{level} file={short(file)},title={short(title)}::{data}"


def annotations(said: dict[str, Any], file: str) -> Iterator[str]:
    """Yield an annotation per layer that rounding does not explain, or one for the verdict where no layer has it."""
    layers = [x for x in said.get("layers", ()) if tone_of(x["verdict"]) != "good"]
    for x in layers[:MOST]:
        yield command(LEVELS[tone_of(x["verdict"])], file, f"{x['layer']} ({x['operator']})", x["detail"])
    tone = tone_of(said["verdict"])
    if not layers and tone != "good":
        text = "; ".join([*said.get("sentences", ()), *said.get("notes", ())]) or said["verdict"]
        yield command(LEVELS[tone], file, said["verdict"], text)


def table(said: dict[str, Any], file: str) -> str:
    """Return the summary as Markdown: the verdict, and the layers that are not exact, the worst first."""
    cell = lambda text: str(text).replace("|", "\\|").replace("\n", " ")
    lines = [f"### {said['verdict']}: {cell(file)}", ""]
    layers = [x for x in said.get("layers", ()) if x["verdict"] != "exact"]
    if layers:
        lines += ["| layer | operator | verdict | error / bound |", "|---|---|---|---|"]
    for x in sorted(layers, key=lambda x: -(x["ratio"] if x["ratio"] is not None else float("inf")))[:30]:
        used = "" if x["ratio"] is None else f"{x['ratio']:.2g}"
        lines.append(f"| {cell(x['layer'])} | {cell(x['operator'])} | {x['verdict']} | {used} |")
    return "\n".join([*lines, *(f"\n{cell(note)}" for note in said.get("notes", ()))]) + "\n"


def main() -> None:
    report, file = sys.argv[1:]
    try:
        said = json.loads(Path(report).read_text())
        said["verdict"]
    except (ValueError, KeyError):
        print(command("error", file, "specgrad", "no verdict was printed; the step's log says why"))
        return
    for line in annotations(said, file):
        print(line)
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        with Path(summary).open("a") as out:
            out.write(table(said, file))


if __name__ == "__main__":
    main()
