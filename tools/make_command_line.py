"""docs/reference/command-line.md from the --help of every command: `python tools/make_command_line.py`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from specgrad.cli.main import GROUPS, _command, loaded

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "command-line.md"
INTRO = """# The command line

What `specgrad COMMAND --help` prints, of every command. Exit codes are 0 yes, 1 no, 2 open, 3 usage, 4 unexpected; with
`--json` a command prints [one object](json.md). `specgrad --install-completion` teaches the shell commands, options and
runtimes.

Written by `python tools/make_command_line.py`.
"""
WIDTH = 10**4  # no line of a help is wrapped
VALUES = {"str": "TEXT", "text": "TEXT", "int": "INTEGER", "integer": "INTEGER", "float": "NUMBER"}
VALUES |= {"path": "FILE", "filename": "FILE"}
PASSED_OVER = ("--help", "--install-completion", "--show-completion")


def help_of(name: str, command: Any) -> str:
    """What --help prints, in lines that are not wrapped."""
    above = command.context_class(_command(), info_name="specgrad")
    own = command.context_class(command, info_name=name, parent=above, max_content_width=WIDTH, terminal_width=WIDTH)
    return str(command.get_help(own))


def sections(text: str) -> dict[str, list[str]]:
    """Lines of a help by the heading above them; what stands below the usage is "text"."""
    found: dict[str, list[str]] = {"text": []}
    title = "text"
    for line in text.splitlines():
        if line.startswith("Usage: "):
            found["usage"] = [line.removeprefix("Usage: ")]
        elif re.fullmatch(r"\w+:", line):
            title = line[:-1]
            found[title] = []
        elif line.strip().startswith("Example: "):
            found["example"], title = [line.strip().removeprefix("Example: ")], "below"
            found["below"] = []
        elif line.strip():
            found[title].append(line)
    return found


def head(text: str) -> str:
    """An option with what stands after it, in words that are the same for every version of typer."""
    text = re.sub(r"<([^<>]*)>", lambda m: f" {m[1].upper()}", text.replace("{", "").replace("}", ""))
    text = re.sub(r"LIST\[(\w+)\]", r"\1", text)
    names = [w.rstrip(",") for w in text.split() if w.startswith("-")]
    values = [w for w in text.split() if not w.startswith(("-", "/"))]
    value = VALUES.get(values[0].lower(), values[0]) if values and names else ""
    return " ".join([", ".join(names) or text.split()[0], value]).strip()


def meaning(text: str) -> str:
    """A help text with its default, for a cell of a table; limits of numbers are left out."""
    text = re.sub(r" *\[required\]", "", text)
    default = re.search(r" *\[default: ([^\];]*)[^\]]*\]$", text)
    text = re.sub(r" *\[(?:default: |[\d.]*[<>x])[^\]]*\]$", "", text)
    text += f" Default: {default[1]}." if default else ""
    return text.replace("|", "\\|").replace("<", "&lt;")


def rows(lines: list[str]) -> Iterator[str]:
    whole = re.sub(r"\n {3,}", "   ", "\n".join(lines))  # below a long name its text has a line of its own
    for line in whole.splitlines():
        first, _, text = line.strip().partition("  ")
        if not first.startswith(PASSED_OVER) and text:
            yield f"| `{head(first)}` | {meaning(text.strip())} |\n"


def described(name: str, command: Any) -> Iterator[str]:
    found = sections(help_of(name, command))
    yield f"\n### {name}\n\n{' '.join(line.strip() for line in found['text'])}\n"
    if "example" in found:
        yield f"\n```console\n$ {found['example'][0]}\n```\n"
    table = [*rows(found.get("Arguments", [])), *rows(found.get("Options", []))]
    if table:
        yield "\n| | |\n|---|---|\n"
        yield from table


def document() -> str:
    parts = [INTRO]
    for title, names in GROUPS.items():
        parts.append(f"\n## {title}\n")
        for name in names:
            command = loaded(name)
            parts += described(name, command)
            for word, one in getattr(command, "commands", {}).items():
                parts += described(f"{name} {word}", one)
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(document())
