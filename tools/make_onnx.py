"""Write docs/reference/onnx.md from the code: the two tables of ONNX, and the prose around them.

python tools/make_onnx.py
"""

from __future__ import annotations

from pathlib import Path

import onnx

from specgrad.interop.onnx.file import BYTE_BUDGET, MAX_ENTRIES, MAX_NODES
from specgrad.interop.onnx.read.convert_node import CONTRIBUTED, MAX_GRAPH_NODES, all_operators
from specgrad.interop.onnx.read.importer import MAX_KNOWN_CELLS
from specgrad.interop.onnx.write.model import EMITTERS
from specgrad.op import REGISTRY

PROSE = Path(__file__).with_name("onnx_prose.md")


def attributes(name: str, versions: tuple[int, ...]) -> str:
    """Every attribute that a schema version of the table has."""
    found: dict[str, None] = {}
    for version in versions:
        found.update(dict.fromkeys(sorted(onnx.defs.get_schema(name, version, "").attributes)))
    return ", ".join(found)


def reading() -> str:
    rows = ["| operator | versions | attributes | notes |", "|---|---|---|---|"]
    for name in sorted(all_operators()):
        known = all_operators()[name]
        versions = ", ".join(map(str, known.versions))
        rows.append(f"| {name} | {versions} | {attributes(name, known.versions)} | {known.note} |")
    for (domain, name), contributed in sorted(CONTRIBUTED.items()):
        rows.append(f"| {domain or 'ai.onnx'}.{name} | 1 |  | {contributed.operator.note} |")
    return "\n".join(rows)


def writing() -> str:
    missing = ", ".join(f"`{name}`" for name in sorted(set(REGISTRY) - set(EMITTERS)))
    return f"{len(EMITTERS)} of {len(REGISTRY)} registered operators are written; without a counterpart: {missing}."


def document() -> str:
    limits = {
        "ENTRIES": MAX_ENTRIES,
        "NODES": MAX_NODES,
        "RECORDED": MAX_GRAPH_NODES,
        "KNOWN": MAX_KNOWN_CELLS,
        "BUDGET": BYTE_BUDGET,
    }
    text = PROSE.read_text()
    for name, value in limits.items():
        text = text.replace(f"{{{name}}}", f"{value:,}")
    return text.replace("{READING}", reading()).replace("{WRITING}", writing())


if __name__ == "__main__":
    (PROSE.parents[1] / "docs" / "reference" / "onnx.md").write_text(document())
