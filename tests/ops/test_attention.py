"""Attention against PyTorch's own in float64: masks, causality, scales, broadcast axes; what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import specgrad as sg
from specgrad.interop import from_torch
from specgrad.ops.attention import attention

pytestmark = pytest.mark.quick
MASK = torch.tensor([[1, 0, 1, 1, 0], [0, 1, 0, 0, 0], [1, 1, 1, 1, 1], [0, 0, 0, 1, 1]], dtype=torch.bool)


def tensors(*lead: int) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    return tuple(
        torch.randn((*lead, n, e), generator=generator, dtype=torch.float64) for n, e in ((4, 3), (5, 3), (5, 2))
    )


CASES: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "plain": ((2, 3), {}),
    "scaled": ((2,), {"scale": 0.25}),
    "causal": ((2, 3), {"is_causal": True}),
    "mask of booleans": ((2, 3), {"attn_mask": MASK}),
    "mask of numbers": ((2, 3), {"attn_mask": torch.linspace(-2, 2, 20, dtype=torch.float64).reshape(4, 5)}),
    "mask per head": ((2, 3), {"attn_mask": torch.linspace(-9, 9, 60, dtype=torch.float64).reshape(3, 4, 5)}),
}


class Module(torch.nn.Module):
    def __init__(self, given: dict[str, Any]) -> None:
        super().__init__()
        self.given = {k: v for k, v in given.items() if k != "attn_mask"}
        self.register_buffer("attn_mask", given.get("attn_mask"))

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=self.attn_mask, **self.given)


@pytest.mark.parametrize("name", CASES)
def test_equals_pytorch(name: str) -> None:
    lead, given = CASES[name]
    q, k, v = tensors(*lead)
    graph = from_torch(Module(given), q, k, v)
    expected = F.scaled_dot_product_attention(q, k, v, **given)
    np.testing.assert_allclose(graph(*(t.numpy() for t in (q, k, v))), expected.numpy(), rtol=1e-12, atol=1e-13)


def test_a_masked_key_decides_nothing_however_large() -> None:
    """Without an infinity: what is masked has weight 0, and does not push the others out of the floats' range."""
    q, k, v = np.ones((1, 1)), np.array([[1.0], [1000.0], [2.0]]), np.array([[1.0], [50.0], [3.0]])
    found = attention(q, k, v, np.array([[True, False, True]]), scale=1)
    e = np.exp([1.0, 2.0])
    np.testing.assert_allclose(found, [[(e[0] * 1 + e[1] * 3) / e.sum()]], rtol=1e-14)


def test_refused_by_name() -> None:
    q, k, v = (t.numpy() for t in tensors(2))
    none = MASK.numpy().copy()
    none[1] = False
    for arguments, message in (
        (((q, k, v, none), {}), "attention [P5]: a query whose mask admits no key has no weights"),
        (((q, k, v, MASK.numpy()), {"causal": True}), "attention [P5]: causal=True with a mask is not supported"),
        (
            ((q, v, k), {}),
            "attention [C1]: needs q (..., L, E), k (..., S, E), v (..., S, Ev); got (2, 4, 3), (2, 5, 2)",
        ),
    ):
        with pytest.raises(sg.SpecgradError) as caught:
            attention(*arguments[0], **arguments[1])
        assert str(caught.value).startswith(message)
    with pytest.raises(sg.SpecgradError, match=r"dropout_p=0.5 draws random numbers"):
        from_torch(Module({"dropout_p": 0.5}), *tensors(2))
