"""specgrad audit record, then audit --recorded and evidence of what it wrote."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("safetensors")


def test_record_audit_and_evidence(folder, run) -> None:
    pytest.importorskip("torch")
    np.save("two.npy", np.float32([[1, 0.5], [0.25, -1]]))
    code, out, _ = run("audit record net.onnx --runtime onnxruntime --input two.npy --points --out r --json")
    said = json.loads(out)
    assert (code, said["runs"], said["tensors"], said["folder"], said["inputs"]) == (0, 2, 8, "r", ["two.npy"] * 2)
    code, out, _ = run("audit net.onnx --recorded r --json")
    assert (code, json.loads(out)["runtime"]) == (0, "recorded of onnxruntime")
    assert run("evidence net.onnx --recorded r")[0] in (0, 1)  # the profile finds what it finds
    code, _, err = run("evidence clean.onnx --recorded r")
    assert (code, "was recorded of net.onnx with SHA-256" in err) == (3, True)
    code, _, err = run("audit clean.onnx --recorded r")
    assert (code, "was recorded of net.onnx with SHA-256" in err) == (3, True)
    assert run("audit net.onnx --recorded r --of openvino")[0] == 3


def test_record_says_what_it_drew(folder, run) -> None:
    code, out, err = run("audit record net.onnx --runtime onnxruntime --out r")
    assert (code, err) == (0, "")
    assert "4 tensors of 1 runs" in out
    assert "inputs: normal numbers, 1x2, seed 0" in out
    assert run("audit record net.onnx --runtime onnxruntime --out net.onnx")[0] == 3
    assert run("audit record g.json --runtime onnxruntime --out r")[0] == 3
