"""Print how tight audits of networks with normalisations and softmax are, from the answers of `specgrad audit --json`.

    specgrad audit vit_b_16.onnx --runtime onnxruntime --input vit_b_16.npz --unusual note --json > vit_b_16.json
    python benchmarks/normalised_networks.py vit_b_16.json ...

Files and inputs are those of benchmarks/zoo_files.py. A layer is as tight as the largest error that it may have over
its largest value; layers that only move cells, of which no error is allowed, are left out.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

HEAD = (
    "| network, 224x224 | verdict | layers judged | exact | tightest | loosest | 1/std and totals, largest seen | "
    "outputs, off by / usual |"
)


def rows(path: Path) -> Iterator[str]:
    """The row of one audit."""
    answer: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    layers = answer["layers"]
    wide = sorted((x for x in layers if x["allowed_share"]), key=lambda x: x["allowed_share"])
    judged = f"{answer['coverage']['layers']} of {answer['coverage']['of_layers']}"
    exact = sum(x["verdict"] == "exact" for x in layers)
    run = answer["run"] or {}
    run_text = f"{run['difference']:.1e} / {run['usual']:.1e}" if run else ""
    cells = [path.stem, answer["verdict"], judged, str(exact), named(wide[0]), named(wide[-1])]
    cells += [unknowns(layers), run_text]
    yield f"| {' | '.join(cells)} |"


def named(layer: dict[str, Any]) -> str:
    """A layer's name, operator and allowance."""
    operator = re.sub(r"\s.*", "", layer["operator"].removeprefix("node_"))
    return f"{layer['layer']} ({operator}) {layer['allowed_share']:.1e}"


def unknowns(layers: Sequence[dict[str, Any]]) -> str:
    """How many layers were judged by what their cells share, and how far the unknowns were from the exact ones."""
    texts = []
    for what in ("1/std", "sum exp"):
        found = [x["detail"] for x in layers if what in x["detail"] and "of the exact one" in x["detail"]]
        ends = [float(e) for d in found for e in re.findall(r" 1 ([-+][\d.e-]+) to ([-+][\d.e-]+) of", d)[0]]
        if ends:
            texts.append(f"{len(found)} {'norms' if what == '1/std' else 'softmaxes'}, {max(map(abs, ends)):.1e}")
    return "; ".join(texts) or "none"


if __name__ == "__main__":
    print(HEAD)
    print("|---|---|--:|--:|---|---|---|---|")
    for name in sys.argv[1:]:
        for row in rows(Path(name)):
            print(row)
