"""The words that JSON schemas (draft 2020-12) of results are made of, and their names."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]
DRAFT = "https://json-schema.org/draft/2020-12/schema"
VERSIONS: dict[str, int] = dict.fromkeys(("accuracy", "campaign-collect", "certify", "largest"), 2)
VERSIONS |= dict.fromkeys(("audit", "compare", "tolerance"), 3)
"""Of schemas that are not version 1 any more."""


def schema_name(command: str) -> str:
    """Return the value of the key "schema" in what a command prints.

    >>> schema_name("audit")
    'specgrad/audit/3'
    """
    return f"specgrad/{command}/{VERSIONS.get(command, 1)}"


# --- parts ------------------------------------------------------------------------------------------------------------


def text(about: str) -> Schema:
    """Return the JSON schema of a text, which `about` describes."""
    return {"type": "string", "description": about}


def count(about: str) -> Schema:
    """Return the JSON schema of an integer from 0, which `about` describes."""
    return {"type": "integer", "minimum": 0, "description": about}


def integer(about: str) -> Schema:
    """Return the JSON schema of an integer, which `about` describes."""
    return {"type": "integer", "description": about}


def number(about: str) -> Schema:
    """Return the JSON schema of a number, which `about` describes; NaN and infinities are written as "nan", "inf",
    "-inf".
    """
    return {"anyOf": [{"type": "number"}, {"enum": ["nan", "inf", "-inf"]}], "description": about}


def bound(about: str) -> Schema:
    """Return the JSON schema of a number, or null for unbounded, which `about` describes."""
    return or_null({"type": "number"}, about)


def list_of(items: Schema, about: str) -> Schema:
    """Return the JSON schema of a list of `items`, which `about` describes."""
    return {"type": "array", "items": items, "description": about}


def map_of(values: Schema, about: str) -> Schema:
    """Return the JSON schema of an object with arbitrary keys, such as names of layers or packages; `about` describes
    it.
    """
    return {"type": "object", "additionalProperties": values, "description": about}


def or_null(part: Schema, about: str) -> Schema:
    """Return the JSON schema of a part that may be null, which `about` describes."""
    return {"anyOf": [part, {"type": "null"}], "description": about}


def choice(*words: str) -> Schema:
    """Return the JSON schema of a value that is one of these words."""
    return {"enum": list(words), "description": " | ".join(words)}


def object_of(about: str, /, optional: Schema | None = None, **keys: Schema) -> Schema:
    """Return the JSON schema of an object with exactly these keys, which `about` describes; `optional` ones may be
    absent.
    """
    every = {name.replace("__", "-"): part for name, part in keys.items()}
    return {
        "type": "object",
        "properties": {**every, **(optional or {})},
        "required": list(every),
        "additionalProperties": False,
        "description": about,
    }


def command_schema(
    name: str, about: str, verdicts: Schema, /, optional: Schema | None = None, **keys: Schema
) -> Schema:
    """Return the schema of what the command `name` prints under --json: the verdict, one of `verdicts`, and `keys`.

    `about` describes it; `optional` are keys that may be missing.
    """
    constant = {"const": schema_name(name), "description": "the name and the version of this schema"}
    whole = object_of(about, optional, schema=constant, verdict=verdicts, **keys)
    return {"$schema": DRAFT, "$id": schema_name(name), "title": name, **whole}


SHAPE = list_of(count("a size"), "the sizes of all axes")
INDEX = list_of(
    count("an index"), "a cell: one index per axis; before them the number of the point, if there are several"
)
VERSIONS_USED = map_of(text("a version"), "the packages that were used, with their versions")
NOTES = list_of(text("a sentence"), "what else a reader should know")
DEPLOYMENT = map_of(text("a sentence"), "the executions that this is about, in sentences")
ASKED = list_of(
    object_of(
        "a runtime's answer at the counterexample",
        who=choice("torch", "module", "onnxruntime"),
        outcome=choice("breaks it", "does not break it", "does not count", "no answer"),
        optional={
            "y": list_of(number("an output"), "the outputs that it computes"),
            "reason": text("why there are none, or why they do not count"),
        },
    ),
    "everybody who was asked: torch (specgrad's engine), module (the PyTorch module that was given), onnxruntime",
)
UNKNOWN = object_of(
    "unknown after a search: how far it came, and what would help",
    problems=count("sub-problems that were bounded"),
    rate=number("of them per second"),
    settled=or_null(number(""), "the share of the box of inputs that is settled; null: not known"),
    seconds_more=or_null(number(""), "if what is left is like what is settled; null: nobody can say"),
    margin=or_null(number(""), "of the open part that is farthest from proven: not above 0"),
    box=list_of(
        object_of("", input=count("its number"), low=number("its ends in that part"), high=number("")),
        "inputs that were cut",
    ),
    rounding={"type": "boolean", "description": "that part would be excluded if nothing were rounded"},
    layer=or_null(
        object_of("", name=text("the layer that loses most there"), share=number("of what is lost")), "null: not known"
    ),
)
