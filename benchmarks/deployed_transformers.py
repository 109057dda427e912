"""A transformer as it is deployed: every layer judged on PyTorch, torch.compile and ONNX Runtime; planted faults.

    python benchmarks/deployed_transformers.py --size tiny                      seconds; what the tests of a change need
    python benchmarks/deployed_transformers.py --size 0.5B --dtype bfloat16 --runtime torch
    python benchmarks/deployed_transformers.py --size 0.5B --faults             ten faults, each recorded and judged

The network is transformers' Qwen2 with the config of a public model of half a billion parameters, random weights, and
random biases and weights of norms (no hub is asked); 128 tokens. Needs transformers.
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import resource
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from specgrad.check import audit, audit_recorded, open_recording, record
from specgrad.deadline import time_limit

SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 3, "num_attention_heads": 4,
             "num_key_value_heads": 2, "vocab_size": 500},
    "0.5B": {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
             "num_key_value_heads": 2, "vocab_size": 151_936},
}  # fmt: skip
SIZES["0.5B-2"] = SIZES["0.5B"] | {"num_hidden_layers": 2}
SIZES["width"] = SIZES["0.5B-2"] | {"vocab_size": 2_000}  # faults of layers are not in the table of words
TOKENS = 128


class Logits(nn.Module):
    """Token ids to logits, without a cache."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor) -> Tensor:
        logits: Tensor = self.model(ids, use_cache=False).logits
        return logits


def transformers() -> Any:
    """The package, which imports the torchvision that is there, if of another PyTorch too: hidden from it."""
    find = importlib.util.find_spec
    importlib.util.find_spec = lambda name, *rest: None if name.startswith("torchvision") else find(name, *rest)
    import transformers as package

    return package


def randomise(model: nn.Module) -> None:
    """Draw biases and weights of norms, which are 0 and 1 otherwise."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith("bias"):
                p.normal_(0, 0.5)
            elif p.ndim == 1:
                p.uniform_(0.5, 1.5)


def network(size: str, dtype: torch.dtype, attention: str = "eager") -> Logits:
    """The network with random weights, biases and weights of norms."""
    library = transformers()
    torch.manual_seed(0)
    config = library.Qwen2Config(
        **SIZES[size], tie_word_embeddings=True, rope_parameters={"rope_type": "default", "rope_theta": 1e6}
    )
    config._attn_implementation = attention
    model = library.Qwen2ForCausalLM(config).eval()
    randomise(model)
    return Logits(model.to(dtype)).eval()


def said(found: Any) -> str:
    """A verdict in a line: which layers, how many, and the first that rounding does not explain."""
    verdicts = [layer.verdict.kind for layer in found.layers]
    each = ", ".join(f"{verdicts.count(word)} {word}" for word in dict.fromkeys(verdicts))
    first = "" if found.first_divergent is None else f"; first {found.first_divergent.name}"
    return f"{found.verdict}: {each}{first}"


def peak() -> float:
    """The most memory that this process has had, GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


@contextmanager
def layers_alone(whole: bool) -> Iterator[tuple[Any, list[float]]]:
    """A `progress`, and what was spent when it was told of the whole model: CPU seconds and GB; no time is left for
    that unless `whole`.
    """
    before, spent = time.process_time(), [0.0, 0.0]
    with ExitStack() as stack:

        def step(what: str, *_: Any) -> None:
            spent[:] = [time.process_time() - before, peak()]
            if what == "whole model" and not whole:
                stack.enter_context(time_limit(0))

        yield step, spent


def judge(size: str, dtype: torch.dtype, runtime: str, whole: bool) -> None:
    """Audit the network on a runtime and print the verdict, with what it cost until all layers were judged."""
    module, ids = network(size, dtype), np.random.default_rng(0).integers(0, SIZES[size]["vocab_size"], (1, TOKENS))
    count = sum(p.numel() for p in module.parameters())
    before = time.process_time()
    with layers_alone(whole) as (step, spent):
        found = audit(module, runtime, ids, partial=True, progress=step)
    cost = f"layers {spent[0]:.0f} CPU s, {spent[1]:.1f} GB"
    if whole:
        cost += f"; whole model {found.whole.kind}, {time.process_time() - before:.0f} CPU s, {peak():.1f} GB"
    print(f"{size} ({count:,} parameters) {dtype} on {runtime}: {said(found)}; {cost}", flush=True)


def plant(size: str, dtype: torch.dtype) -> None:
    """Plant each fault in the middle layer, record that network, and print what the correct one says of it."""
    correct, ids = network(size, dtype), np.random.default_rng(0).integers(0, SIZES[size]["vocab_size"], (1, TOKENS))
    from transformer_faults import FAULTS

    layers = correct.model.model.layers
    number = len(layers) // 2
    for name, (fault, where) in FAULTS.items():
        whole = layers[number]
        layers[number] = copy.deepcopy(whole)
        fault(layers[number])
        with tempfile.TemporaryDirectory() as folder:
            record(correct, "torch", [(ids,)], folder)
            layers[number] = whole
            before = time.process_time()
            found = audit_recorded(correct, open_recording(folder), partial=True)
        first = None if found.first_divergent is None else found.first_divergent.name
        is_there = str(first).removesuffix(" input").endswith(f"layers.{number}.{where}")
        seen = "found there" if is_there else "NOT found there"
        print(f"{name:28} {seen}; {said(found)}; {time.process_time() - before:.0f} CPU s, {peak():.1f} GB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="tiny")
    parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], default="float32")
    parser.add_argument("--runtime", nargs="*", default=["torch", "torch-compile", "onnxruntime"])
    parser.add_argument("--whole", action="store_true", help="the whole model after its layers")
    parser.add_argument("--faults", action="store_true")
    options = parser.parse_args()
    dtype = getattr(torch, options.dtype)
    if options.faults:
        return plant(options.size, dtype)
    for runtime in options.runtime:
        judge(options.size, dtype, runtime, options.whole)
    return None


if __name__ == "__main__":
    main()
