"""Write docs/findings/runtimes.md: every installed runtime against every operator, a script behind each finding."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from specgrad.atomic_files import refuse_foreign, write_whole

from ..cases.generate import DATA, SHAPES
from .broken_rule import TEXT
from .conformance import BAD, Conformance, Finding
from .repro_script import is_script, marked

PAGE = "runtimes.md"
INTRO = """# What runtimes compute

Is a difference between two runtimes rounding, or a bug? This page asks the runtimes below the same
generated questions: {operators} operators, shapes and attributes drawn at random, {kinds} kinds of data ({data}).
The generator uses no runtime. An answer is right if it equals the exact value, or lies within the proven
bound on rounding in any order of summation; there are no tolerances. What lies outside is shrunk to the smallest
question that still shows it, and written as a script that needs only the runtime and numpy.

Written by `specgrad conformance runtimes --write docs/findings` with seed {seed}.

| runtime | packages | questions | exact | rounding | refused | other arithmetic | differs | crashed | findings |
|---|---|--:|--:|--:|--:|--:|--:|--:|--:|
"""
LEGEND = """
A number is the largest share of the allowed error that any answer used (**0**: every answer exact). A label names the
rule that is broken and links to the script. *Refused*: the runtime raises an error for some of these questions.
An empty cell: the runtime has no such operator, or it was not asked. Labels in *italics* concern NaN or infinities.

"""
HEAD = ["| operator | rule | smallest question | what happens |", "|---|---|---|---|"]
EARLIER = "## Found earlier, not in this run"


def _count_verdicts(result: Conformance, *kinds: str) -> int:
    """Return how many answers in a runtime's `result` have one of the verdicts `kinds`."""
    return sum(counts[k] for counts in result.counts.values() for k in kinds)


def _count_cases(result: Conformance) -> int:
    """Return how many cases the runtime of `result` was run on."""
    return sum(sum(c.values()) - c["not offered"] for c in result.counts.values())


def _summary_row(result: Conformance) -> str:
    """Return the row of one runtime's `result` in the first table."""
    packages = ", ".join(f"{k} {v}" for k, v in result.versions.items())
    kinds = [("exact",), ("rounding",), ("refuses",), ("other arithmetic",), ("differs",), ("crashes", "times out")]
    counts = " | ".join(f"{_count_verdicts(result, *k):,}" if _count_verdicts(result, *k) else "" for k in kinds)
    name = f"[{result.runtime}](#{result.runtime})"
    return f"| {name} | {packages} | {_count_cases(result):,} | {counts} | {len(result.findings)} |"


def _script_paths(result: Conformance) -> list[tuple[Finding, str]]:
    """Return every finding of a runtime's `result` with the path of its script."""
    return [(f, f"runtimes/{name}") for f, name in zip(result.findings, result.scripts(), strict=True)]


def _operator_cell(result: Conformance, operator: str) -> str:
    """Return the table cell of one operator in a runtime's `result`: broken rules, else the largest share of the
    allowance.
    """
    counts = result.counts.get(operator)
    if counts is None or sum(counts.values()) == counts["not offered"]:
        return ""
    labels: dict[str, str] = {}
    for finding, link in _script_paths(result):
        if finding.operator == operator:
            mark = "*" if finding.rule in ("P1", "P2") else "**"
            name = finding.rule if finding.verdict.kind == "differs" else finding.verdict.kind
            labels.setdefault(name, f"{mark}[{name}]({link}){mark}")
    words = list(labels.values())
    if not words and any(counts[k] for k in BAD):
        words = ["**differs**"]
    if not words and counts["exact"] + counts["rounding"]:
        words = [f"{result.ratios[operator]:.2f}" if counts["rounding"] else "0"]
    return " ".join(words + (["*refused*"] if counts["refuses"] else []))


def _matrix_table(results: Sequence[Conformance]) -> list[str]:
    """Return the table of operators by runtimes, line by line, from a result per runtime."""
    names = [r.runtime for r in results]
    lines = ["| operator | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for operator in SHAPES:
        cells = [_operator_cell(r, operator) for r in results]
        if any(cells):
            lines.append(f"| {operator} | " + " | ".join(cells) + " |")
    return lines


def _runtime_section(result: Conformance) -> list[str]:
    """Return the section of one runtime's `result`, line by line."""
    lines = [f"### {result.runtime}", ""]
    if not result.findings:
        return [*lines, "No finding.", ""]
    lines += HEAD
    for finding, link in _script_paths(result):
        what = "gradient of " if finding.question.gradient is not None else ""
        detail = str(finding.verdict).removeprefix(f"{finding.verdict.kind}: ").replace("|", "\\|")
        rule = f"[{finding.rule}]({link}) {TEXT[finding.rule]}"
        question = str(finding.question).removeprefix("gradient of ").replace("|", "\\|")
        cells = f"{rule} | `{question}` | {finding.verdict.kind}: {detail}"
        lines.append(f'| <a id="{Path(link).stem}"></a>{what}{finding.operator} | {cells} |')
    reasons = sorted({(op, why[:90]) for op, c in result.refusals.items() for why in c}, key=lambda r: r[0])
    if reasons:
        first = dict(reversed(reasons))
        lines += ["", "Refused, an example each: " + "; ".join(f"{op} (`{why}`)" for op, why in sorted(first.items()))]
    return [*lines, ""]


def document(results: Sequence[Conformance]) -> str:
    """Return the page on all runtimes, from a result for each, as Markdown: a summary, the matrix, then every
    finding.
    """
    intro = INTRO.format(operators=len(SHAPES), kinds=len(DATA), data=", ".join(DATA), seed=results[0].seed)
    rules = " | ".join(f"**{label}**: {text}" for label, text in TEXT.items())
    lines = [intro + "\n".join(map(_summary_row, results)), "", "## The matrix", LEGEND.strip(), ""]
    lines += [*_matrix_table(results), "", "Rules: " + rules.replace(" | ", "; ") + ".", "", "## Findings", ""]
    for result in results:
        lines += _runtime_section(result)
    return "\n".join(lines).rstrip() + "\n"


def with_earlier_rows(old: str, new: str) -> str:
    """Return the new page with those rows of the old one whose anchor it lacks, so that links stay valid.

    >>> row = '| <a id="engine-relu-P1"></a>relu | [P1](runtimes/engine-relu-P1.py) NaN | `relu` | differs |'
    >>> print(with_earlier_rows(row, "new").splitlines()[-1])
    | <a id="engine-relu-P1"></a>relu | P1 NaN | `relu` | differs |
    """
    there = set(re.findall(r'<a id="([^"]+)"></a>', new))
    rows = [row for row in re.findall(r"^\| <a id=.*$", old, flags=re.MULTILINE) if row.split('"')[1] not in there]
    if not rows:
        return new
    plain = [re.sub(r"\[([^\]]*)\]\(runtimes/[^)]*\)", r"\1", row) for row in rows]  # scripts go with their findings
    return "\n".join([new.rstrip(), "", EARLIER, "", *HEAD, *plain]) + "\n"


def write(results: Sequence[Conformance], folder: Path, *, force: bool = False) -> Path:
    """Write the page and its scripts, remove our own scripts of earlier runs, and return the page's path.

    Without `force`, a FileExistsError names the first file in the way that we did not write; nothing is written then.
    `results` has one for each runtime.
    """
    page = folder / PAGE
    text = with_earlier_rows(page.read_text() if page.is_file() else "", document(results))
    scripts = {folder / "runtimes" / name: text for result in results for name, text in result.scripts().items()}
    if not force:
        refuse_foreign(page, is_page)
        for path in scripts:
            refuse_foreign(path, is_script)
    (folder / "runtimes").mkdir(parents=True, exist_ok=True)
    for path, script in scripts.items():
        write_whole(path, marked(script))
    write_whole(page, text)
    for old in set((folder / "runtimes").glob("*.py")) - set(scripts):
        if old.is_file() and is_script(old.read_bytes()):
            old.unlink()
    return page


def is_page(data: bytes) -> bool:
    """Return whether specgrad wrote this page, whose bytes are `data`."""
    return (
        re.search(rb"Written by `specgrad (conformance )?runtimes --write", data[:4000]) is not None
    )  # before 0.2 too
