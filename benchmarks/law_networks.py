"""Ten whole networks on PyTorch, ours against the bare module: speed and peak memory of every mode.

python benchmarks/law_networks.py                                  every row that is not measured yet, then the table
python benchmarks/law_networks.py --only mobilenet_v2 --mode eager --size 64   some rows, measured again
python benchmarks/law_networks.py --losing                         the rows below 0.95x, measured again
python benchmarks/law_networks.py --table                          the rows so far, the slowest first

eager           the module itself, with `specgrad.functional` in the place of `torch.nn.functional`
compiled        to_torch(from_torch(module, x))
torch.compile   torch.compile of that, against torch.compile of the module
gradient graph  sg.grad of the mean square in all parameters, compiled, against torch.autograd.grad

One thread, CPU time, both sides in turn, the smallest of each. Bare is the module as published, whose activations work
in place where it says so; only beside eager they do not, for our functions refuse inplace=True and the row compares the
same calls. Batch normalisation is in inference form on both sides. Values are compared before they are timed. Memory is
the peak that PyTorch's allocator reports during one step, above what was there before.
Needs torchvision's definitions: benchmarks/zoo.py.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from itertools import accumulate, product
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

import specgrad as sg
import specgrad.functional
from measure import compare
from specgrad.interop import from_torch, to_torch
from zoo import Shape, _fill_zeros, _settle, _torchvision

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler announces itself
RESULTS = Path(__file__).parent / "results" / "law_networks.jsonl"
MODES, LAYOUTS = ("eager", "compiled", "gradient graph", "torch.compile"), ("contiguous", "channels_last")
LAW = 0.95
Work = Callable[[], Any]


# --- the networks -----------------------------------------------------------------------------------------------------


def _ours(name: str, **options: Any) -> nn.Module:
    import models  # tests/interop, where zoo points

    module: nn.Module = getattr(models, name)(**options)
    return module


def _volumes() -> nn.Module:
    """The convolutions of C3D at a quarter of its width."""
    parts: list[nn.Module] = []
    channels = 3
    for i, widths in enumerate(((16,), (32,), (64, 64), (128, 128))):
        for width in widths:
            parts += [nn.Conv3d(channels, width, 3, padding=1), nn.BatchNorm3d(width), nn.ReLU(inplace=True)]
            channels = width
        parts.append(nn.MaxPool3d((2, 2, 2) if i else (1, 2, 2)))
    return nn.Sequential(*parts, nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(channels, 10))


SIDES = ("64x64", "160x160", "224x224")
PUBLISHED = (
    "resnet18",
    "resnet50",
    "mobilenet_v2",
    "mobilenet_v3_large",
    "efficientnet_b0",
    "densenet121",
    "convnext_tiny",
)
NETWORKS: dict[str, tuple[Callable[[], nn.Module], int, tuple[str, ...]]] = {
    **{name: (partial(_torchvision, name), 3, SIDES) for name in PUBLISHED},
    "unet": (partial(_ours, "UNet", width=16), 1, SIDES),
    "cnn3d": (_volumes, 3, ("8x56x56",)),
    "lenet": (partial(_ours, "LeNet"), 1, ("28x28",)),
}


def build(network: str, size: str, layout: str) -> tuple[nn.Module, Tensor]:
    make, channels, _ = NETWORKS[network]
    spatial: Shape = tuple(map(int, size.split("x")))
    torch.manual_seed(0)
    module = make().eval()
    _fill_zeros(module)
    _settle(module, torch.randn(4, channels, *(min(n, 64) for n in spatial)))
    x = torch.randn(2 if max(spatial) <= 64 else 1, channels, *spatial)
    return (module, x) if layout == "contiguous" else (_last(module), _last_of(x))


def _last_of(t: Tensor) -> Tensor:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return t.contiguous(memory_format=formats[t.ndim]) if t.ndim in formats else t


def _last(module: nn.Module) -> nn.Module:
    for p in (*module.parameters(), *module.buffers()):
        p.data = _last_of(p.data)
    return module


# --- eager: the module's calls through our functions ------------------------------------------------------------------


def _functions() -> dict[str, Any]:
    """Our function for each of PyTorch's that we have; those that may work in place never do."""
    ours = {k: f for k, f in vars(specgrad.functional).items() if callable(f) and hasattr(torch.nn.functional, k)}
    for name in ("relu", "silu", "hardswish"):
        ours[name] = lambda x, inplace=False, f=ours[name]: f(x)
    ours["relu6"] = lambda x, inplace=False: sg.relu6(x)
    ours["hardtanh"] = lambda x, low=-1.0, high=1.0, inplace=False: (
        sg.relu6(x) if (low, high) == (0, 6) else sg.clamp(x, low, high)
    )
    return ours


def _with(module: ModuleType, ours: dict[str, Any]) -> ModuleType:
    """A module that answers as this one, but for some names."""
    twin = ModuleType(module.__name__)
    twin.__dict__.update(vars(module) | ours)
    twin.__getattr__ = lambda name: getattr(module, name)  # type: ignore[method-assign]
    return twin


class Eager:
    """Calls of a module with other functions where its code says torch.nn.functional, torch.cat and torch.flatten.

    Changing what a name stands for costs a call some 5 %, so the bare side goes this way too, with PyTorch's own.
    """

    def __init__(self, module: nn.Module, *, ours: bool) -> None:
        self.module = module
        flat = {"cat": sg.concat, "flatten": lambda x, start=0: sg.flatten(x, start)}
        functions = _with(torch.nn.functional, _functions() if ours else {})
        whole = _with(torch, flat if ours else {})
        homes = {type(part).__module__ for part in module.modules()}
        homes |= {base.__module__ for part in module.modules() for base in type(part).__mro__[:-2]}
        self.places = [
            (vars(sys.modules[home]), name, twin)
            for home in sorted(homes)
            for name, theirs, twin in (("F", torch.nn.functional, functions), ("torch", torch, whole))
            if vars(sys.modules[home]).get(name) is theirs
        ]

    def __call__(self, x: Tensor) -> Tensor:
        before = [(space, name, space[name]) for space, name, _ in self.places]
        for space, name, twin in self.places:
            space[name] = twin
        try:
            y: Tensor = self.module(x)
        finally:
            for space, name, theirs in before:
                space[name] = theirs
        return y


# --- one row ----------------------------------------------------------------------------------------------------------


class _Loss(nn.Module):
    """The mean square of a module's output as a function of its parameters, for the gradient graph."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module, self.names = module, [name for name, _ in module.named_parameters()]

    def forward(self, x: Tensor, *parameters: Tensor) -> Tensor:
        given = dict(zip(self.names, parameters, strict=True))
        y: Tensor = torch.func.functional_call(self.module, given, (x,))
        return y.square().mean()


@lru_cache(maxsize=1)
def _graph(network: str, size: str) -> sg.Graph:
    with _quiet():
        return from_torch(*build(network, size, "contiguous"))


@lru_cache(maxsize=1)
def _gradient_graph(network: str, size: str) -> sg.Graph:
    module, x = build(network, size, "contiguous")
    parameters = [p.detach().clone() for p in module.parameters()]
    with _quiet():
        graph = from_torch(_Loss(module), x, *parameters)
    return sg.grad(graph, range(1, 1 + len(parameters)))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    logging.disable(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    logging.disable(logging.NOTSET)


def _forward(f: Callable[..., Any], *args: Any) -> Work:
    def run() -> Any:
        with torch.no_grad():
            return f(*args)

    return run


def _step(f: Callable[[Tensor], Tensor], x: Tensor, parameters: list[nn.Parameter]) -> Work:
    return lambda: torch.autograd.grad(f(x).square().mean(), parameters)


def _twin(
    module: nn.Module, network: str, size: str, layout: str, dtype: torch.dtype
) -> tuple[nn.Module, list[nn.Parameter]]:
    """Our module, and its parameters in the order of theirs."""
    ours = to_torch(_graph(network, size)).to(dtype)
    own = dict(ours.named_parameters())
    return (ours if layout == "contiguous" else _last(ours)), [own[name] for name, _ in module.named_parameters()]


def _works(network: str, size: str, mode: str, layout: str, dtype: torch.dtype) -> dict[str, tuple[Work, Work]]:
    bare: Any
    bare, x = build(network, size, layout)
    bare, x = bare.to(dtype), x.to(dtype)
    parameters = list(bare.parameters())
    if mode == "gradient graph":
        compiled = sg.compile(_gradient_graph(network, size), "torch").to(dtype)
        return {"step": (_step(bare, x, parameters), _forward(compiled, x, *parameters))}
    ours: Any
    if mode == "eager":
        for part in bare.modules():
            vars(part).update({"inplace": False} if hasattr(part, "inplace") else {})
        bare, ours, own = Eager(bare, ours=False), Eager(bare, ours=True), parameters
    else:
        ours, own = _twin(bare, network, size, layout, dtype)
    if mode == "torch.compile":
        torch._dynamo.reset()
        bare, ours = torch.compile(bare), torch.compile(ours)
    return {
        "forward": (_forward(bare, x), _forward(ours, x)),
        "step": (_step(bare, x, parameters), _step(ours, x, own)),
    }


def works(network: str, size: str, mode: str, layout: str) -> dict[str, tuple[Work, Work]]:
    """For each direction the bare work and ours; their values agree.

    In float64: of networks that were never trained, float32 leaves gradients with few digits, on either side.
    """
    plain = "compiled" if mode == "torch.compile" else mode
    for bare, ours in _works(network, size, plain, layout, torch.float64).values():
        _agree(bare, ours)
    return _works(network, size, mode, layout, torch.float32)


def _agree(bare: Work, ours: Work) -> None:
    theirs, found = (y if isinstance(y, tuple) else (y,) for y in (bare(), ours()))
    largest = max(float(a.abs().max()) for a in theirs)
    for a, b in zip(theirs, found, strict=True):
        distance = float((a - b).abs().max())
        if not distance <= 1e-6 * float(a.abs().max()) + 1e-9 * largest:
            raise AssertionError(f"values differ by {distance:.2g}, of {float(a.abs().max()):.2g}")


def peak(work: Work) -> float:
    """The most that PyTorch's allocator held at once during one call above what it held before, in MB."""
    gc.collect()
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True, acc_events=True) as profile:
        work()
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    events.sort(key=lambda e: e.start_ns())
    return max(accumulate(e.nbytes() for e in events)) / 1e6


def measure(network: str, size: str, mode: str, layout: str, budget: float) -> Iterator[dict[str, Any]]:
    for direction, (bare, ours) in works(network, size, mode, layout).items():
        seconds = compare(bare, ours, budget=budget, least=3)
        yield {
            "engine": "torch",
            "network": network,
            "size": size,
            "mode": mode,
            "direction": direction,
            "layout": layout,
            "bare": seconds[0],
            "ours": seconds[1],
            "bare_mb": round(peak(bare), 2),
            "ours_mb": round(peak(ours), 2),
        }


# --- the table --------------------------------------------------------------------------------------------------------


def key(row: dict[str, Any]) -> tuple[str, ...]:
    return tuple(row[k] for k in ("network", "size", "mode", "direction", "layout"))


def stored() -> dict[tuple[str, ...], dict[str, Any]]:
    """The last measurement of each row."""
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    return {key(row): row for row in map(json.loads, lines)}


def table(rows: list[dict[str, Any]]) -> str:
    """The slowest first."""
    lines = ["| network | mode | direction | layout | bare, ms | ours, ms | speed | peak MB, bare | ours |"]
    lines.append("|---|---|---|---|--:|--:|--:|--:|--:|")
    for r in sorted(rows, key=lambda r: r["bare"] / r["ours"]):
        times = f"{r['bare'] * 1e3:.3g} | {r['ours'] * 1e3:.3g} | {r['bare'] / r['ours']:.2f}x"
        what = f"{r['network']} {r['size']} | {r['mode']} | {r['direction']} | {r['layout']}"
        lines.append(f"| {what} | {times} | {r['bare_mb']:.1f} | {r['ours_mb']:.1f} |")
    fast = sum(r["bare"] / r["ours"] >= LAW for r in rows)
    small = sum(r["ours_mb"] <= 1.05 * r["bare_mb"] for r in rows)
    lines.append(f"\n{fast} of {len(rows)} rows at {LAW}x or faster, {small} within 1.05 of the bare peak.")
    return "\n".join(lines)


def _wanted(options: argparse.Namespace) -> Iterator[tuple[str, str, str, str]]:
    for network, (_, _, sizes) in NETWORKS.items():
        for size, mode, layout in product(sizes, MODES, LAYOUTS):
            if mode == "torch.compile" and not options.mode and (size, layout) != (sizes[0], LAYOUTS[0]):
                continue  # its compiler takes minutes for each: the smallest size alone, unless asked for
            chosen = ((options.only, network), (options.size, size), (options.mode, mode), (options.layout, layout))
            if all(not given or value in given for given, value in chosen):
                yield network, size, mode, layout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=NETWORKS, help="some networks")
    parser.add_argument("--mode", nargs="*", choices=MODES)
    parser.add_argument("--size", nargs="*", choices=sorted({s for _, _, sizes in NETWORKS.values() for s in sizes}))
    parser.add_argument("--layout", nargs="*", choices=LAYOUTS)
    parser.add_argument("--budget", type=float, default=0.6, help="CPU seconds per row; large rows run three times")
    parser.add_argument("--losing", action="store_true", help="measure again the rows below 0.95x, and no others")
    parser.add_argument("--table", action="store_true", help="print what is stored")
    options = parser.parse_args()
    torch.set_num_threads(1)
    again = bool(options.only or options.mode or options.size or options.layout)
    for row in () if options.table else _wanted(options):
        have = [r["bare"] / r["ours"] for k, r in stored().items() if (*k[:3], k[4]) == row]
        if min(have, default=LAW) >= LAW if options.losing else have and not again:
            continue
        for found in measure(*row, options.budget):
            with RESULTS.open("a") as file:
                file.write(json.dumps(found) + "\n")
            ratio, memory = found["bare"] / found["ours"], found["ours_mb"] / max(found["bare_mb"], 1e-9)
            print(f"{' '.join(key(found))}: {ratio:.2f}x, memory {memory:.2f}", flush=True)
    rows = stored()
    RESULTS.write_text("".join(json.dumps(rows[k]) + "\n" for k in sorted(rows)))
    print(table(list(rows.values())))


if __name__ == "__main__":
    main()
