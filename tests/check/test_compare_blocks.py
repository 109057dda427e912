"""Files in blocks of channels that do not say how many a block has: `compare` says on which reading a verdict rests."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import specgrad as sg
from specgrad.check import compare
from specgrad.interop import from_onnx

NCHWC = "com.microsoft.nchwc"
WEIGHTS = np.arange(1, 49, dtype=np.float32).reshape(16, 3)


def convolution(block: int | None, weights: np.ndarray = WEIGHTS) -> onnx.ModelProto:
    """3 channels to 16, plain or in blocks, as ONNX Runtime writes it: nothing is filled up."""
    stored = weights if block is None else np.moveaxis(weights.reshape(-1, block, 3), 1, -1)
    conv = helper.make_node("Conv", ["x", "w"], ["y" if block is None else "b"], name="conv", domain=block and NCHWC)
    out = helper.make_node("ReorderOutput", ["b"], ["y"], name="out", domain=NCHWC, channels=16)
    sizes = [[1, 3, 2, 2], [1, 16, 2, 2]]
    ends = [helper.make_tensor_value_info(n, 1, s) for n, s in zip("xy", sizes, strict=True)]
    kept = [numpy_helper.from_array(stored.reshape(16, 3, 1, 1).copy(), "w")]
    graph = helper.make_graph([conv] if block is None else [conv, out], "one", ends[:1], ends[1:], kept)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(NCHWC, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


@pytest.mark.quick
@pytest.mark.parametrize("block", [8, 16])
def test_a_verdict_says_which_blocks_it_takes_for_granted(block: int) -> None:
    done = compare(convolution(None), convolution(block))
    assert done.verdict == "same"
    assert done.method.endswith(f"if the second model's blocks have {block} channels, which its file does not say")
    done = compare(convolution(24 - block), convolution(block))
    assert done.verdict == "same"
    assert f"first model's blocks have {24 - block} channels" in done.method
    assert f"second model's blocks have {block} channels" in done.method


@pytest.mark.quick
@pytest.mark.parametrize("block", [8, 16])
def test_models_differ_where_they_do_in_every_reading(block: int) -> None:
    changed = WEIGHTS.copy()
    changed[5, 1] += 1
    done = compare(convolution(None), convolution(block, changed))
    assert done.verdict == "differs"
    assert done.method.endswith("whether blocks have 16 channels or 8")


@pytest.mark.quick
def test_one_reading_alone_shows_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    """That with blocks of 8 two files differ says nothing while with blocks of 16 it is open."""
    from specgrad.check.comparison import block_readings
    from specgrad.check.comparison.result import Comparison
    from specgrad.interop.model import open_model

    models = [open_model(convolution(n), "compare") for n in (None, 16)]
    open_one, both = ("differs", "cannot tell"), ("differs", "differs")
    for verdicts, said in ((open_one, "cannot tell"), (open_one[::-1], "cannot tell"), (both, "differs")):
        left = list(verdicts)
        done = block_readings.compare_readings(*models, lambda a, b, left=left: Comparison(left.pop(), "so"))
        assert done.verdict == said

    def refused(a: object, b: object) -> Comparison:
        if b.block_channels == 8:
            raise sg.UnsupportedError("from_onnx", "no")
        return Comparison("differs", "so")

    assert block_readings.compare_readings(*models, refused).verdict == "cannot tell"


@pytest.mark.quick
@pytest.mark.parametrize("block", [8, 16])
def test_from_onnx_reads_the_blocks_that_it_is_told(block: int) -> None:
    x = np.random.default_rng(0).normal(size=(1, 3, 2, 2))
    graph = from_onnx(convolution(block), block_channels=block)
    np.testing.assert_allclose(graph(x), np.einsum("oc,nchw->nohw", WEIGHTS, x), rtol=1e-12)
    with pytest.raises(sg.ParameterError, match="must be one of"):
        from_onnx(convolution(block), block_channels=4)
    shown = convolution(block)
    shown.graph.node[-1].attribute[0].i = 5 if block == 16 else 16
    if block == 16:
        with pytest.raises(sg.ParameterError, match="the file shows 16"):
            from_onnx(shown, block_channels=8)
