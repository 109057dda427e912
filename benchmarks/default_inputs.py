"""Which ONNX files accept the inputs that are drawn for them: python benchmarks/default_inputs.py FOLDER

Every file is run once on ONNX Runtime, on the CPU. "accepted": no error, and no NaN or infinity among the outputs.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnxruntime

from specgrad.check import default_inputs
from specgrad.interop.model import open_model


def outcome(path: Path) -> str:
    """What came of one file: what was drawn, or why it was not accepted."""
    try:
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    except Exception as error:  # of the runtime, whatever it raises
        return f"not loaded: {' '.join(str(error).split()):.100}"
    model = open_model(path)
    try:
        drawn = default_inputs(model)
        outputs = session.run(None, dict(zip(model.names, drawn.arrays, strict=True)))
    except Exception as error:
        return f"refused: {' '.join(str(error).split()):.100}"
    finite = all(np.isfinite(y).all() for y in outputs if y.dtype.kind == "f")
    return f"{'accepted' if finite else 'not finite'}: {'; '.join(drawn.about)}"


def main() -> None:
    onnxruntime.set_default_logger_severity(4)
    rows = {path.stem: outcome(path) for path in sorted(Path(sys.argv[1]).glob("*.onnx"))}
    print(f"python benchmarks/default_inputs.py FOLDER, ONNX Runtime {onnxruntime.__version__}\n")
    for name, text in rows.items():
        print(f"{name:<36}{text.replace(sys.argv[1], 'FOLDER')}")
    print(f"\n{sum(text.startswith('accepted') for text in rows.values())} of {len(rows)} accepted")


if __name__ == "__main__":
    main()
