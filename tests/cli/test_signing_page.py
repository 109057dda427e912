"""docs/guide/signing.md: its commands run as they stand, on a model that they can say yes to."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("torch")
PAGE = (Path(__file__).parents[2] / "docs" / "guide" / "signing.md").read_text(encoding="utf-8")
LINES = re.findall(r"^\$ specgrad (.*?)  +#", PAGE, re.MULTILINE)
FINDINGS = 1  # a bare file breaks rules of the profile: no types, no metadata, no digests


def test_the_commands_of_the_page(folder: Path, run) -> None:
    for name, copy in (("net.onnx", "model.onnx"), ("p.vnnlib", "property.vnnlib")):
        shutil.copy(folder / name, folder / copy)
    x = np.array([[1, 0.5]], np.float32)
    np.save(folder / "x.npy", x)
    h = x @ np.float32([[1, 1], [1, -1]])
    np.savez(folder / "target.npz", x=x, h=h, y=np.maximum(h, 0))
    codes = {" ".join(line.split()[:1] + line.split()[2:3] * ("--normalise" in line)): run(line)[0] for line in LINES}
    names = ("tolerance", "audit", "preserve", "certify", "check-certificate")
    assert codes.pop("profile --normalise") in (0, 2)  # what is written breaks nothing; the texts leave some undecided
    assert codes == {"profile": FINDINGS, "evidence": FINDINGS, **dict.fromkeys(names, 0)}
