"""Modules that take token ids and masks: on PyTorch as they are, and exported."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from specgrad import ParameterError
from specgrad.check import audit, audit_recorded, open_recording, record

IDS = np.arange(6).reshape(1, 6)
MASK = np.array([[1, 1, 1, 1, 0, 0]], bool)


class Tagger(nn.Module):
    """Rows of an embedding, tokens that do not count set to 0, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.head = nn.Embedding(50, 8), nn.Linear(8, 4)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.head(self.table(ids) * mask.unsqueeze(-1).to(torch.float32))
        return y.masked_fill(~mask.unsqueeze(-1), 0.0)


@pytest.mark.parametrize("runtime", ["torch", "onnxruntime"])
def test_ids_and_masks_are_audited(runtime: str) -> None:
    found = audit(Tagger().eval(), runtime, [IDS, MASK])
    assert (found.verdict, found.whole.kind) == ("rounding", "rounding")
    assert found.coverage.is_whole


class NextRow(Tagger):
    """A Tagger that reads the row behind each token's."""

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return super().forward(ids + 1, mask)


def test_another_row_of_the_table_is_a_fault_of_that_layer(tmp_path: Path) -> None:
    record(NextRow().eval(), "torch", [(IDS, MASK)], tmp_path)
    found = audit_recorded(Tagger().eval(), open_recording(tmp_path))
    assert found.verdict == "differs"
    assert found.first_divergent is not None
    assert found.first_divergent.name == "table"


def test_other_integers_are_refused_by_what_to_give() -> None:
    with pytest.raises(ParameterError, match=r"ids has type torch.int32; give torch.int64"):
        audit(Tagger().eval(), "torch", [IDS.astype(np.int32), MASK])


class Reader(nn.Module):
    """Attention over tokens that a mask of int64 admits, by PyTorch's function or by sums with the lowest number."""

    def __init__(self, *, fused: bool, masked: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.out, self.fused, self.masked = nn.Embedding(50, 8), nn.Linear(8, 8), fused, masked

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = self.table(ids).unsqueeze(1)
        seen = mask[:, None, None].bool() & torch.ones(6, 6, dtype=torch.bool) if self.masked else None
        if self.fused:
            return self.out(nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=seen))
        scores = x @ x.transpose(2, 3)
        scores = scores if seen is None else scores + torch.where(seen, torch.zeros(()), torch.finfo(torch.float32).min)
        return self.out(torch.softmax(scores, -1) @ x)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("runtime", ["torch", "onnxruntime"])
def test_masks_of_integers_are_audited(runtime: str, fused: bool) -> None:
    found = audit(Reader(fused=fused).eval(), runtime, [IDS, MASK.astype(np.int64)])
    assert (found.verdict, found.whole.kind) == ("rounding", "rounding")
    assert found.coverage.is_whole


@pytest.mark.parametrize("fused", [True, False])
def test_a_mask_that_is_not_read_is_a_fault(fused: bool, tmp_path: Path) -> None:
    inputs = IDS, MASK.astype(np.int64)
    record(Reader(fused=fused, masked=False).eval(), "torch", [inputs], tmp_path)
    found = audit_recorded(Reader(fused=fused).eval(), open_recording(tmp_path))
    assert found.verdict == "differs"
    assert found.first_divergent is not None
    assert found.first_divergent.name == "out input"


def test_of_a_query_that_reads_no_key_nothing_is_claimed() -> None:
    found = audit(Reader(fused=True).eval(), "torch", [IDS, 0 * MASK.astype(np.int64)])
    assert found.verdict == "cannot tell"
