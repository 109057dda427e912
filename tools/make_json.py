"""docs/reference/json.md from the schemas: `python tools/make_json.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from specgrad.cli.schema_command import schemas
from specgrad.cli.shared.exit_codes import CODES

# ruff: noqa: E501 - rows of a table

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "json.md"
INTRO = """# What `--json` prints

Under `--json` every command prints one object on stdout, and nothing else. `specgrad explain schema audit` prints the JSON
schema (draft 2020-12) of its objects, and `specgrad explain schema` all names. The first key names the schema with its version:

    "schema": "specgrad/audit/3"

The number grows when a key goes or changes its meaning. Keys may be added at any time, so a reader passes over keys
that it does not know. JSON has no NaN and no infinities: where a number may be one, it is the string "nan", "inf" or
"-inf".

## Exit codes

Of every command. The exit code says the same as `verdict`, and `verdict` tells apart what shares a code:

{codes}

`holds` ends with 2 where a certificate was asked for and there is none. A reader who closes the pipe early (`specgrad show net.onnx |
head -1`) changes neither the code nor the files.

Only a verdict ends the command `specgrad` with 0 or 1. (`python -m specgrad` too; where the package
itself cannot be imported it prints a traceback, as Python does.) An object that is no answer of the command has the schema `specgrad/error/1`.

## Without it

Tables are plain text with full lines where the output is a pipe or a file. In a window they have
colours; a narrow window gets a block per row. No number is cut or folded.

Written by `python tools/make_json.py`.
"""


MEANINGS = {0: "yes", 1: "no", 2: "open: not known yet, or not all of it"}
OTHERS = (
    "| 3 | error | refused: usage, an operator or a file that cannot be read, a package that is missing |",
    "| 4 | error | an error of specgrad or the machine: anything unexpected, a worker of ours that gave no answer; `--debug` shows where |",
    "| 128 + n | cannot tell, if anything is printed | signal n ended the command: 143 after SIGTERM, 129 after SIGHUP; an interrupt (SIGINT) is 2 |",
)


def code_table() -> str:
    """The table of exit codes, from the one that commands end by."""
    words = {code: ", ".join(v for v, c in CODES.items() if c == code) for code in MEANINGS}
    lines = [f"| {code} | {words[code]} | {meaning} |" for code, meaning in MEANINGS.items()]
    return "\n".join(["| code | verdict | meaning |", "|--:|---|---|", *lines, *OTHERS])


def rows(schema: dict[str, Any], before: str = "") -> list[str]:
    """A line per key, then those of what stands inside."""
    lines = []
    for name, part in schema["properties"].items():
        always = "" if name in schema["required"] else "sometimes"
        key = f"{before}{name}"
        lines.append(f"| `{key}` | {kind(part)} | {always} | {about(part)} |".replace("  |", " |"))
        inner, suffix = inside(part)
        if inner is not None and (same := SEEN.setdefault(str(inner["properties"]), f"{key}{suffix}")):
            again = same != f"{key}{suffix}"
            lines += [f"| `{key}{suffix}.*` | | | as `{same}.*` |"] if again else rows(inner, f"{key}{suffix}.")
    return lines


SEEN: dict[str, str] = {}


def about(part: dict[str, Any]) -> str:
    return str(part["description"]).replace("|", "\\|")


def inside(part: dict[str, Any], suffix: str = "") -> tuple[dict[str, Any] | None, str]:
    """The object with fixed keys within lists, maps and choices."""
    if "properties" in part:
        return part, suffix
    if "items" in part:
        return inside(part["items"], f"{suffix}[]")
    if isinstance(part.get("additionalProperties"), dict):
        return inside(part["additionalProperties"], f"{suffix}.*")
    if "anyOf" in part:
        return inside(part["anyOf"][0], suffix)
    return None, suffix


def kind(part: dict[str, Any]) -> str:
    if "enum" in part or "const" in part:
        return "string"
    if "anyOf" in part:
        first = kind(part["anyOf"][0])
        return first if first == "number" else f"{first} or null"
    if part.get("type") == "array":
        return f"list of {kind(part['items'])}s" if "items" in part else "list"
    if part.get("type") == "object" and "properties" not in part:
        return "map"
    return str(part.get("type", "any"))


def document() -> str:
    parts = [INTRO.replace("{codes}", code_table())]
    for name, schema in schemas().items():
        SEEN.clear()
        title = f"## {name}\n\n{schema['description'].capitalize()}.\n"
        parts.append("\n".join([title, "| key | type | | meaning |", "|---|---|---|---|", *rows(schema), ""]))
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(document())
