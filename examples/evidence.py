"""Evidence for a small classifier whose values were recorded on another runtime: from the file to the page.

The ONNX file is normalised for the safety profile. OpenVINO, in float32, stands for the target: it computes every
layer, and its arrays are all that is kept. A property is proven, its certificate is written, and everything goes into
one page.

    python examples/evidence.py FOLDER     writes evidence.html, and all files that it is about
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import openvino

import specgrad as sg
from specgrad.bounds.search.certificates.prove import prove
from specgrad.interop import to_onnx
from specgrad.safety.evidence import Evidence, gather
from specgrad.safety.evidence.page import evidence_page
from specgrad.safety.profile.normaliser import normalise

SIZE, CLASSES, POINTS, EPS = 8, 3, 5, 1 / 1024


def network(seed: int = 0) -> sg.Graph:
    rng = np.random.default_rng(seed)
    first = (rng.normal(size=(4, 1, 3, 3)) / 3).astype(np.float32)
    second = (rng.normal(size=(8, 4, 3, 3)) / 6).astype(np.float32)
    last = (rng.normal(size=(CLASSES, 8 * 4 * 4)) / 11).astype(np.float32)

    def classify(image):
        x = sg.max_pool(sg.relu(sg.conv(first, None, image, padding=1)), (2, 2), stride=2)
        return sg.linear(last, None, sg.flatten(sg.relu(sg.conv(second, None, x, padding=1)), 1))

    return sg.trace(classify, (1, 1, SIZE, SIZE))


def record(path: Path, images: np.ndarray) -> dict[str, np.ndarray]:
    """Every value of the file at every image, as the target computes it."""
    file = onnx.load(path)
    names = [name for node in file.graph.node for name in node.output]
    del file.graph.output[:]
    file.graph.output.extend(v for v in (*file.graph.value_info, *onnx.load(path).graph.output) if v.name in names)
    names = [v.name for v in file.graph.output]
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(file.SerializeToString()), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    runs = [compiled([image]) for image in images]
    values = {name: np.stack([run[k] for run in runs]) for k, name in enumerate(names)}
    return {file.graph.input[0].name: images, **values}


def stays_the_largest(image: np.ndarray, label: int) -> str:
    """VNN-LIB: within EPS of the image, no other class becomes as large."""
    names = [f"X_{i}" for i in range(image.size)] + [f"Y_{j}" for j in range(CLASSES)]
    lines = [f"(declare-const {name} Real)" for name in names]
    for i, value in enumerate(image.ravel().tolist()):
        lines += [f"(assert (>= X_{i} {value - EPS!r}))", f"(assert (<= X_{i} {value + EPS!r}))"]
    others = " ".join(f"(and (>= Y_{j} Y_{label}))" for j in range(CLASSES) if j != label)
    return "\n".join([*lines, f"(assert (or {others}))"])


def main(folder: Path) -> Evidence:
    rng = np.random.default_rng(1)
    images = rng.random((POINTS, 1, 1, SIZE, SIZE), dtype=np.float32)
    tests = rng.random((20, 1, SIZE, SIZE), dtype=np.float32)
    model, target, statement = folder / "net.onnx", folder / "target.npz", folder / "robust.vnnlib"
    written = normalise(to_onnx(network()))
    model.write_bytes(written.data)
    (folder / "net.onnx.digests.json").write_text(written.side)
    recorded = record(model, images)
    np.savez(target, **recorded)
    graph_input = onnx.load(model).graph.input[0].name
    np.savez(folder / "test.npz", **{graph_input: tests})
    scores = recorded[onnx.load(model).graph.output[0].name]
    statement.write_text(stays_the_largest(images[0], int(scores[0].argmax())))
    prove(str(model), statement).save(folder / "net.cert.json")
    asked = {"data": {graph_input: tests}, "box": (0.0, 1.0), "certificates": [(folder / "net.cert.json", statement)]}
    evidence = gather(model, recorded, files={"recorded": target, "data": folder / "test.npz"}, **asked)
    (folder / "evidence.html").write_text(evidence_page(evidence))
    return evidence


if __name__ == "__main__":
    place = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    place.mkdir(parents=True, exist_ok=True)
    for item in main(place).items:
        print(f"{item.verdict:10} {item.name}: {item.answer}")
