"""Encoders as they are deployed: every layer of BERT, ViT and Whisper's encoder judged on PyTorch, torch.compile, and
as ONNX files of both exporters on ONNX Runtime and OpenVINO; planted faults.

    python benchmarks/encoder_transformers.py --network bert --size tiny                    seconds
    python benchmarks/encoder_transformers.py --network vit --runtime onnxruntime --exporter legacy
    python benchmarks/encoder_transformers.py --network whisper --faults                    faults, recorded and judged

The networks are transformers' with the configs of public models, random weights, and random biases and weights of norms
(no hub is asked). BERT reads 128 tokens, of which the mask hides 28, and token types. Needs transformers.
"""

from __future__ import annotations

import argparse
import copy
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from deployed_transformers import layers_alone, peak, randomise, said, transformers
from specgrad.check import audit, audit_recorded, open_recording, record
from specgrad.check.models.run_torch import exported

SIZES: dict[str, dict[str, dict[str, Any]]] = {
    "bert": {
        "tiny": {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96,
                 "vocab_size": 500},
        "full": {},  # the defaults of BertConfig are those of bert-base-uncased
    },
    "vit": {
        "tiny": {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96,
                 "image_size": 64},
        "full": {},  # those of ViTConfig are those of vit-base-patch16-224
    },
    "whisper": {
        "tiny": {"d_model": 48, "encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 96,
                 "max_source_positions": 60},
        "full": {"d_model": 384, "encoder_layers": 4, "encoder_attention_heads": 6, "encoder_ffn_dim": 1536},
    },
}  # fmt: skip
TOKENS, VISIBLE = 128, 100


class Tensors(nn.Module):
    """An encoder that takes tensors and returns tensors."""

    def __init__(self, model: nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *given: torch.Tensor) -> Any:
        result = self.model(**dict(zip(self.names, given, strict=True)))
        pooled = getattr(result, "pooler_output", None)
        return result.last_hidden_state if pooled is None else (result.last_hidden_state, pooled)


def network(name: str, size: str, dtype: torch.dtype, attention: str) -> tuple[Tensors, tuple[np.ndarray, ...]]:
    """The network with random weights, and its inputs."""
    library, rng = transformers(), np.random.default_rng(0)
    torch.manual_seed(0)
    config: Any = {"bert": library.BertConfig, "vit": library.ViTConfig, "whisper": library.WhisperConfig}[name](
        **SIZES[name][size]
    )
    config._attn_implementation = attention
    inputs: tuple[np.ndarray, ...]
    if name == "bert":
        ids = rng.integers(0, config.vocab_size, (1, TOKENS))
        inputs = ids, (np.arange(TOKENS) < VISIBLE)[None].astype(np.int64), (np.arange(TOKENS) > 60)[None] * 1
        model, names = library.BertModel(config), ("input_ids", "attention_mask", "token_type_ids")
    elif name == "vit":
        inputs = (rng.normal(size=(1, 3, config.image_size, config.image_size)).astype(np.float32),)
        model, names = library.ViTModel(config), ("pixel_values",)
    else:
        from transformers.models.whisper.modeling_whisper import WhisperEncoder

        frames = 2 * config.max_source_positions
        inputs = (rng.normal(size=(1, config.num_mel_bins, frames)).astype(np.float32),)
        model, names = WhisperEncoder(config), ("input_features",)
    randomise(model)
    return Tensors(model.to(dtype), names).eval(), inputs


@contextmanager
def traced(module: nn.Module, inputs: tuple[np.ndarray, ...]) -> Iterator[Path]:
    """The file that the exporter by tracing writes, as `exported` gives that of the other."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / "model.onnx"
        torch.onnx.export(module, tuple(map(torch.from_numpy, inputs)), path, dynamo=False, opset_version=17)
        yield path


EXPORTERS = {"dynamo": exported, "legacy": traced}


def judge(what: str, model: Any, runtime: str, inputs: tuple[np.ndarray, ...], whole: bool) -> None:
    """Audit a module or file on a runtime and print the verdict, with what it cost until all layers were judged."""
    before = time.process_time()
    with layers_alone(whole) as (step, spent):
        found = audit(model, runtime, inputs, partial=True, tolerance_seconds=0, progress=step)
    cost = f"{spent[0]:.0f} CPU s, {spent[1]:.1f} GB"
    if whole:
        cost += f"; whole model {found.whole.kind}, {time.process_time() - before:.0f} CPU s, {peak():.1f} GB"
    print(f"{what} on {runtime}: {said(found)}; {cost}", flush=True)
    for layer in found.layers:
        if layer.verdict.kind not in ("exact", "rounding"):
            print(f"    {layer.name} ({layer.operator}): {layer.verdict}"[:400], flush=True)


def plant(name: str, size: str, dtype: torch.dtype, attention: str, names: list[str]) -> None:
    """Plant each fault in the middle layer, record that network, and print what the correct one says of it."""
    correct, inputs = network(name, size, dtype, attention)
    from encoder_faults import FAULTS, layers_of

    layers = layers_of(correct.model)
    number = len(layers) // 2
    for fault in names or FAULTS[name]:
        (change, where), whole = FAULTS[name][fault], layers[number]
        layers[number] = copy.deepcopy(whole)
        change(layers[number])
        with tempfile.TemporaryDirectory() as folder, layers_alone(False) as (step, spent):
            record(correct, "torch", [inputs], folder)
            layers[number] = whole
            found = audit_recorded(correct, open_recording(folder), partial=True, progress=step)
        first = None if found.first_divergent is None else found.first_divergent.name
        seen = "found there" if str(first).removesuffix(" input").endswith(f".{number}.{where}") else "NOT found there"
        print(f"{name} {size}, {fault}: {seen}; {said(found)}; {spent[0]:.0f} CPU s, {spent[1]:.1f} GB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", choices=SIZES, default="bert")
    parser.add_argument("--size", choices=["tiny", "full"], default="full")
    parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], default="float32")
    parser.add_argument("--attention", choices=["sdpa", "eager"], default="sdpa")
    parser.add_argument("--runtime", nargs="*", default=["torch", "torch-compile", "onnxruntime", "openvino"])
    parser.add_argument("--exporter", nargs="*", choices=EXPORTERS, default=list(EXPORTERS))
    parser.add_argument("--whole", action="store_true", help="the whole model after its layers")
    parser.add_argument("--faults", nargs="*", help="plant these, or all, in place of judging the network as it is")
    options = parser.parse_args()
    dtype = getattr(torch, options.dtype)
    if options.faults is not None:
        return plant(options.network, options.size, dtype, options.attention, options.faults)
    module, inputs = network(options.network, options.size, dtype, options.attention)
    count = sum(p.numel() for p in module.parameters())
    what = f"{options.network} {options.size} ({count:,} parameters) {options.dtype} {options.attention}"
    for runtime in options.runtime:
        if runtime.startswith("torch"):
            judge(what, module, runtime, inputs, options.whole)
            continue
        for exporter in options.exporter:
            with EXPORTERS[exporter](module, inputs) as path:
                judge(f"{what}, {exporter} file", path, runtime, inputs, options.whole)
    return None


if __name__ == "__main__":
    main()
