"""One step of decoding: past keys and values are inputs of a module, present ones outputs, on three runtimes."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

from specgrad.check import audit, audit_recorded, open_recording, record
from specgrad.interop import from_torch

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional
HEADS, SHARED, SIZE, PAST = 4, 2, 8, 5
D = HEADS * SIZE
RUNTIMES = ("torch", "torch-compile", "onnxruntime")


def turned(x: Any, first: int) -> Any:
    """Rotary positions from `first` on: the first half of a head's cells is paired with the second."""
    places = torch.arange(first, first + x.shape[-2])[:, None]
    angles = places * torch.tensor([100.0 ** (-k / (SIZE // 2)) for k in range(SIZE // 2)])
    cos, sin = torch.cos(angles), torch.sin(angles)
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Step(nn.Module):  # type: ignore[misc, name-defined]
    """Token ids, past keys and values to logits, keys and values; a cache starts empty, as that of transformers."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm, self.head = nn.Embedding(20, D), nn.LayerNorm(D), nn.Linear(D, 20)
        self.qkv, self.out = nn.Linear(D, (HEADS + 2 * SHARED) * SIZE), nn.Linear(D, D)
        self.first: int | None = None

    def forward(self, ids: Any, past_keys: Any, past_values: Any) -> Any:
        x = self.table(ids)
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (-1, SIZE)).transpose(1, 2).split((HEADS, SHARED, SHARED), 1)
        past = [torch.cat((torch.tensor([]), a), -2) for a in (past_keys, past_values)]
        first = past[0].shape[-2] if self.first is None else self.first
        keys, values = torch.cat((past[0], turned(k, first)), -2), torch.cat((past[1], v), -2)
        y = F.scaled_dot_product_attention(turned(q, first), keys, values, enable_gqa=True)
        return self.head(x + self.out(y.transpose(1, 2).flatten(-2))), keys, values


def drawn(vocabulary: int) -> list[np.ndarray]:
    """One token, and normal numbers for keys and values."""
    rng = np.random.default_rng(0)
    ids = rng.integers(0, vocabulary, (1, 1))
    return [ids, *(rng.normal(size=(1, SHARED, PAST, SIZE)).astype(np.float32) for _ in range(2))]


def step() -> tuple[Any, list[np.ndarray]]:
    torch.manual_seed(0)
    return Step().eval(), drawn(20)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_step_is_explained(runtime: str) -> None:
    module, given = step()
    done = audit(module, runtime, given)
    assert done.verdict == "rounding", str(done)
    assert done.coverage.is_whole


def test_what_is_read_is_what_pytorch_computes() -> None:
    module, (ids, *past) = step()
    graph = from_torch(module, *map(torch.tensor, (ids, *past)))
    ours = graph(ids, *(a.astype(float) for a in past))
    exact = module.double()(torch.tensor(ids), *(torch.tensor(a).double() for a in past))
    for y, expected in zip(ours, exact, strict=True):
        np.testing.assert_allclose(y, expected.detach().numpy(), rtol=0, atol=1e-6)  # PyTorch's tables are float32


def test_a_new_key_at_the_first_position_differs(tmp_path: Any) -> None:
    """As where a cache forgets how many keys it has: past keys are as they were."""
    module, given = step()
    module.first = 0
    record(module, "torch", [given], tmp_path)
    module.first = None
    found = audit_recorded(module, open_recording(tmp_path))
    assert found.verdict == "differs"


# --- transformers -----------------------------------------------------------------------------------------------------


def decoder(kind: str) -> Any:
    """One layer of a decoder of transformers, and its cache made inside of a call."""
    find = importlib.util.find_spec  # transformers imports the torchvision that is there, if of another PyTorch too
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            importlib.util, "find_spec", lambda n, *rest: None if n.startswith("torchvision") else find(n, *rest)
        )
        transformers = pytest.importorskip("transformers")
        config = getattr(transformers, f"{kind}Config")(
            hidden_size=D, intermediate_size=48, num_hidden_layers=1, num_attention_heads=HEADS,
            num_key_value_heads=SHARED, vocab_size=30, max_position_embeddings=32,
        )  # fmt: skip
        torch.manual_seed(0)
        model = getattr(transformers, f"{kind}ForCausalLM")(config).eval()

    class Decoder(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, ids: Any, keys: Any, values: Any) -> Any:
            cache = transformers.DynamicCache()
            cache.update(keys, values, 0)
            logits = self.model(ids, past_key_values=cache, use_cache=True).logits
            return logits, cache.layers[0].keys, cache.layers[0].values

    return Decoder().eval()


@pytest.mark.parametrize(
    "runtime", ["torch", "onnxruntime", pytest.param("torch-compile", marks=pytest.mark.slow)]
)  # which compiles for a minute
@pytest.mark.parametrize("kind", ["Llama", "Qwen2"])
def test_a_decoder_of_transformers_is_explained(kind: str, runtime: str) -> None:
    done = audit(decoder(kind), runtime, drawn(30))
    assert done.verdict == "rounding", str(done)
    assert done.coverage.is_whole
