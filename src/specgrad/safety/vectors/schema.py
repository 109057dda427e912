"""The schema of a pack's index.json, which is written beside it."""

from __future__ import annotations

from typing import Any

FORMAT = "specgrad-vectors/1"
_text: dict[str, Any] = {"type": "string"}
_count: dict[str, Any] = {"type": "integer", "minimum": 0}
_shape: dict[str, Any] = {"type": "array", "items": _count}


def _object_schema(required: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of an object with exactly the keys of `required`, which map to their schemas."""
    return {"type": "object", "required": [*required], "properties": required, "additionalProperties": False}


_class = _object_schema(
    {
        "type": _text,
        "zone": _text,
        "kind": {"enum": ["type", "shape", "broadcasting", "constraint", "function", "risk"]},
        "text": _text,
        "cases": _count,
    }
)
_operator = _object_schema(
    {
        "covered": _count,
        "listed": _count,
        "classes": {"type": "array", "items": _class},
        "missing": {"type": "object", "additionalProperties": _text},
    }
)
_input = _object_schema({"name": _text, "file": _text, "dtype": _text, "shape": _shape})
_output = _object_schema(
    {"name": _text, "expected": _text, "radius": _text, "dtype": _text, "shape": _shape, "open": _count, "why": _text}
)
_case = _object_schema(
    {
        "tag": {"type": "string", "pattern": "^E_[A-Z0-9]+_[A-Z0-9]+_[A-Z0-9]+_[0-9]{4}$"},
        "operator": _text,
        "type": _text,
        "zone": _text,
        "folder": _text,
        "inputs": {"type": "array", "items": _input},
        "outputs": {"type": "array", "items": _output, "minItems": 1},
        "zero_signs": {"type": "boolean"},
        "note": _text,
        "sha256": {"type": "object", "additionalProperties": {"type": "string", "pattern": "^[0-9a-f]{64}$"}},
    }
)
INDEX: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Index of a folder of test vectors",
    **_object_schema(
        {
            "format": {"const": FORMAT},
            "specgrad": _text,
            "seed": _count,
            "opset": _count,
            "source": _text,
            "complete": {"const": False},
            "incompleteness": _text,
            "executions": {"type": "object", "additionalProperties": _text},
            "operators": {"type": "object", "additionalProperties": _operator},
            "cases": {"type": "array", "items": _case},
        }
    ),
}
