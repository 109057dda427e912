"""Public architectures through three exporters: what comes in, and what the runtimes make of it.

python benchmarks/models.py                            every row, imported and audited: docs/findings/models.md
python benchmarks/models.py resnet18 "swin_t" --audit  some rows, audited; their lines of the page are replaced
python benchmarks/models.py resnet18                   some rows, imported only and printed
python benchmarks/models.py --missing                  the rows that are not audited yet
python benchmarks/models.py --imports                  every row, imported only, where the page does not have it

Needs torchvision's and timm's definitions, not their compiled parts: benchmarks/zoo.py.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import io
import json
import logging
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from specgrad import SpecgradError
from specgrad.check import Audit, audit
from specgrad.interop import from_onnx, from_torch, to_torch
from zoo import INT8, ROWS, build, variant

ROOT = Path(__file__).parents[1]
PAGE, RESULTS = ROOT / "docs" / "findings" / "models.md", ROOT / "benchmarks" / "results" / "models.json"
WAYS = ("torch.export", "ONNX dynamo", "ONNX legacy")
Row = dict[str, Any]


# --- one row ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Exporters print and warn; nothing of it concerns the table."""
    logging.disable(logging.WARNING)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield
    logging.disable(logging.NOTSET)


def _dynamo(module: nn.Module, x: Tensor) -> bytes:
    program: Any = torch.onnx.export(module, (x,), dynamo=True, verbose=False)
    return bytes(program.model_proto.SerializeToString())


def _legacy(module: nn.Module, x: Tensor) -> bytes:
    file = io.BytesIO()
    torch.onnx.export(module, (x,), file, dynamo=False)
    return file.getvalue()


def _line(error: BaseException) -> str:
    """The first line of an error, as a cell of the table."""
    text = " ".join((str(error).splitlines() or [""])[0].split())
    return f"{type(error).__name__}: {text[:160]}".replace("|", "\\|")


def _imported(source: Any, x: Tensor) -> tuple[str, Any]:
    """Whole, partly with the operators that are not examined, or refused; and the graph."""
    if isinstance(source, nn.Module):
        try:
            return "whole", from_torch(source, x)
        except SpecgradError as error:
            return f"refused: {_line(error)}", None
    try:
        return "whole", from_onnx(source)
    except SpecgradError as error:
        refused = f"refused: {_line(error)}"
    try:
        graph = from_onnx(source, partial=True)
    except SpecgradError:
        return refused, None
    missing = Counter(layer.operator for layer in graph.unexamined)
    return "partly, without " + ", ".join(f"{n} {name}" for name, n in missing.items()), graph


def _distance(graph: Any, module: nn.Module, x: Tensor) -> float:
    """The largest difference to PyTorch, both in float64, over the largest output."""
    with torch.no_grad():
        theirs = copy.deepcopy(module).double()(x.double())
        ours = to_torch(graph).double()(x.double())
    return float((theirs - ours).abs().max() / theirs.abs().max())


def _verdict(found: Audit) -> str:
    """The worst of the layers; the model as a whole only where it says more."""
    kinds = Counter(layer.verdict.kind for layer in found.layers)
    if found.first_divergent is not None:
        return f"**{found.verdict}**: {found.first_divergent.name}: {found.first_divergent.verdict}"[:200].replace(
            "|", "\\|"
        )
    if not found.layers:
        return f"{found.whole.kind}: {' '.join(found.notes)[:160]}"
    rest = [f"{n} {kind}" for kind, n in kinds.items() if kind not in ("exact", "rounding")]
    bad = sum(n for kind, n in kinds.items() if kind not in ("exact", "rounding"))
    return f"rounding: {len(found.layers) - bad} layers" + "".join(f"; {text}" for text in rest)


def _audited(source: Any, runtime: str, x: Tensor) -> str:
    try:
        return _verdict(audit(source, runtime, x.numpy()))
    except SpecgradError as error:
        return f"refused: {_line(error)}"


def row(name: str, way: str, audits: bool) -> Row:
    """One architecture through one exporter."""
    result: Row = {"model": name, "way": way}
    start = time.perf_counter()
    module, x = build(name)
    try:
        with _quiet():
            source = variant(name, {"ONNX dynamo": _dynamo, "ONNX legacy": _legacy}.get(way, _itself), module, x)
    except Exception as error:  # the exporter's own
        return result | {"imported": f"not exported: {_line(error)}"}
    with _quiet():
        result["imported"], graph = _imported(source, x)
    result["import seconds"] = round(time.perf_counter() - start, 1)
    if result["imported"] == "whole":
        result["nodes"] = len(graph)
        if x.dtype == torch.float32 and "int8" not in name:
            result["float64"] = _distance(graph, module, x)
    if audits and graph is not None:
        for runtime in ("torch",) if way == "torch.export" else ("onnxruntime", "openvino-f32"):
            with _quiet():
                result[runtime] = _audited(source, runtime, x)
    result["seconds"] = round(time.perf_counter() - start, 1)
    return result


def ways(name: str) -> tuple[str, ...]:
    return WAYS[1:] if name.endswith(INT8) else WAYS


def _itself(module: nn.Module, _: Tensor) -> nn.Module:
    return module


# --- the page ---------------------------------------------------------------------------------------------------------

INTRO = """# Public architectures through three exporters

torchvision's and timm's definitions, a U-Net and a detector of our own (benchmarks/zoo.py), with random weights of a
fixed seed, batch size 1 and a small image, on {versions}.

{counts}

- *imported*: every operator has a meaning here (whole), or some are passed over (partly), or the model is refused.
- *float64*: our graph against PyTorch, both in float64, the largest difference over the largest output. The ONNX
  exporters fold batch normalisation into weights in float32, so theirs is that of a float32.
- *audits*: every layer on the runtime's own inputs to it, by a proven bound. torch.export is audited on PyTorch itself,
  the files on ONNX Runtime and on OpenVINO with the f32 hint.
- int8: ONNX Runtime's static quantisation (QDQ) of the exported file; torch.export has no such row.
- *seconds*: building, exporting, importing, comparing and auditing, on one of two shared cores.

Definitions are torchvision's and timm's with 10 classes, some made smaller (benchmarks/zoo.py says which): AlexNet and
VGG with a 1x1 map and 256 hidden units, "vit_ti_16" is torchvision's class at the sizes of ViT-Ti, "maxvit_t" has 2x2
windows. A cell says the worst verdict of the layers; the whole model's own radius is mostly wider than its values.

OpenVINO computes a dequantised value (q - z)*s inside the kernel that reads it as q*s - z*s: two zeros then add to
-1.3e-7 in the quantised ResNet-18. That is an order of the merged sum, and the layers are judged as such.

Written by `python benchmarks/models.py`.

| model | exporter | imported | nodes | float64 | PyTorch | ONNX Runtime | OpenVINO f32 | seconds |
|---|---|---|--:|--:|---|---|---|--:|
"""


RUNTIMES = ("torch", "onnxruntime", "openvino-f32")


def _is_audited(r: Row) -> bool:
    return any(k in r for k in RUNTIMES)


def _counts(rows: list[Row]) -> str:
    lines = []
    for way in WAYS:
        told = [r["imported"].split(":")[0].split(",")[0] for r in rows if r["way"] == way]
        kinds = Counter(told)
        lines.append(f"- {way}: {', '.join(f'{n} {kind}' for kind, n in kinds.most_common())} of {len(told)}")
    whole = sum(r["imported"] == "whole" for r in rows)
    differs = sum("**" in str(r.get(k, "")) for r in rows for k in RUNTIMES)
    audits = sum(k in r for r in rows for k in RUNTIMES)
    lines.append(f"- together {whole} of {len(rows)} whole ({100 * whole / len(rows):.0f} %)")
    lines.append(f"- {audits} audits, {differs} of them with a layer that rounding does not explain")
    left = [r for r in rows if not _is_audited(r)]
    if left:
        lines.append(f"- {len(left)} rows not audited yet (`python benchmarks/models.py --missing`)")
    return "\n".join(lines)


def _cells(r: Row) -> str:
    distance = f"{r['float64']:.1g}" if "float64" in r else ""
    audits = [r.get(k, "") for k in RUNTIMES]
    cells = (r["model"], r["way"], r["imported"], r.get("nodes", ""), distance, *audits, r.get("seconds", ""))
    return f"| {' | '.join(map(str, cells))} |\n"


def write_page(results: dict[str, Row]) -> None:
    order = [f"{name}, {way}" for name in ROWS for way in ways(name)]
    rows = [results[key] for key in order if key in results]
    packages = ("torch", "torchvision", "timm", "onnx", "onnxscript", "onnxruntime", "openvino")
    said = INTRO.format(versions=", ".join(f"{p} {version(p)}" for p in packages), counts=_counts(rows))
    PAGE.write_text(said + "".join(map(_cells, rows)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help=f"some of {', '.join(ROWS)}; default: all")
    parser.add_argument("--audit", action="store_true", help="audit the models named")
    parser.add_argument("--missing", action="store_true", help="only rows that are not audited yet")
    parser.add_argument("--imports", action="store_true", help="import rows that the page does not have, no audits")
    parser.add_argument("--page", action="store_true", help="write the page from the results so far")
    options = parser.parse_args()
    torch.set_num_threads(1)
    results: dict[str, Row] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    audits = (options.audit or not options.models) and not options.imports
    for name in () if options.page else options.models or ROWS:
        for way in ways(name):
            key = f"{name}, {way}"
            if (options.missing and _is_audited(results.get(key, {}))) or (options.imports and key in results):
                continue
            found = row(name, way, audits)
            print(_cells(found), end="", flush=True)
            if audits or options.imports:
                results[key] = found
                RESULTS.write_text(json.dumps(results, indent=1))
    if audits or options.imports:
        write_page(results)


if __name__ == "__main__":
    main()
