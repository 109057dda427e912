"""How usual are the errors of correct float32 layers, and which planted faults does the estimate find?

    python benchmarks/usual.py correct models/ --out usual.jsonl      every sum layer of every model, on every runtime
    python benchmarks/usual.py plant models/ --out planted.jsonl      faults of 25 kinds in layers of these models
    python benchmarks/usual.py whole models/ --out whole.jsonl        outputs of whole models beside the estimate
    python benchmarks/usual.py table usual.jsonl planted.jsonl whole.jsonl
    python benchmarks/usual.py curve usual.jsonl planted.jsonl --out docs/guide/usual.svg

A folder holds NAME.onnx and NAME.npz (inputs by name), as `python benchmarks/zoo.py FOLDER` makes them. Models that are
in both files already are passed over. Correct executions: ONNX Runtime (no, basic, extended and all optimisations),
OpenVINO in float32, PyTorch (oneDNN on and off, channels last) and JAX. PyTorch and JAX run every layer on the inputs
that ONNX Runtime gave it.
"""

from __future__ import annotations

import argparse
import json
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from specgrad.check.auditing.layer import is_one_layer, reference_backend
from specgrad.check.models.run_onnx import deploy, known_values
from specgrad.check.runtimes import runtime
from specgrad.check.verdicts.judge import expected_balls, judge_array
from specgrad.check.verdicts.run_case import arithmetic_of
from specgrad.check.verdicts.usual import (
    MAX_CHANNEL,
    MAX_PEAK,
    MAX_RMS,
    RUN_FACTOR,
    channel_axis,
    compare,
    compare_run,
    is_estimated,
    sums,
)
from specgrad.engines import compile
from specgrad.errors import SpecgradError
from specgrad.graph.graph import Graph, section
from specgrad.interop.model import open_model
from specgrad.rounding.usual_error import usual_error

Array = np.ndarray
LEVELS = {"disabled": "ORT_DISABLE_ALL", "basic": "ORT_ENABLE_BASIC", "extended": "ORT_ENABLE_EXTENDED"}
"""Of ONNX Runtime, beside all optimisations."""
MAX_LAYERS_PLANTED = 2  # per model
SEED = 1  # of the draw of layers: another one for every change of the estimate, so that layers are fresh


# --- layers -----------------------------------------------------------------------------------------------------------


def inputs_of(file: Path) -> list[Array]:
    """The inputs of NAME.onnx from NAME.npz, in the order of the model."""
    arrays = np.load(file.with_suffix(".npz"))
    return [arrays[name] for name in open_model(str(file)).names]


def layers_of(deployed: Any) -> Iterator[tuple[str, Graph, list[Array], Array]]:
    """(name, layer as a graph, its inputs, its output) of every layer that sums, from a run of the model."""
    for name, position in deployed.layers.items():
        if not isinstance(position, int):
            continue
        part, inputs = section(deployed.graph, position, deployed.known)
        if sums(part) and all(p in deployed.known for p in inputs):
            yield name, part, [deployed.known[p] for p in inputs], deployed.known[position]


def why_passed_over(deployed: Any, part: Graph, got: Array) -> str:
    """Why audits estimate nothing of a layer that sums; "" if they do. As `specgrad.check.auditing.layer` decides."""
    if got.dtype != np.float32 or any(n.name in deployed.computed_in for n in part.nodes):
        return "half or quantised"
    if not is_one_layer(part):
        return "several layers as one"
    return "" if is_estimated(part) else "exp and its kin"


def as_numbers(part: Graph, given: Sequence[Array]) -> list[Array]:
    """The inputs in float64; indices stay."""
    nodes = (part.nodes[p] for p in part.input_positions)
    return [a if n.kind == "index" else a.astype(np.float64) for n, a in zip(nodes, given, strict=True)]


def on_torch(part: Graph, given: Sequence[Array], mkldnn: bool = True, channels_last: bool = False) -> Any:
    """One layer, or a whole model, by PyTorch in float32."""
    import torch

    tensors = [torch.from_numpy(np.ascontiguousarray(a)) for a in given]
    if channels_last:
        tensors = [t.to(memory_format=torch.channels_last) if t.ndim == 4 else t for t in tensors]
    with torch.no_grad(), torch.backends.mkldnn.flags(enabled=mkldnn):
        outputs = compile(part, "torch").float()(*tensors)
        return [np.asarray(y) for y in outputs] if isinstance(outputs, tuple) else np.asarray(outputs)


def on_jax(part: Graph, given: Sequence[Array]) -> Any:
    """One layer, or a whole model, by JAX in float32."""
    import jax.numpy as jnp

    outputs = compile(part, "jax")(*(jnp.asarray(a) for a in given))
    return [np.asarray(y) for y in outputs] if isinstance(outputs, tuple) else np.asarray(outputs)


ENGINES: dict[str, Callable[..., Array]] = {
    "torch": on_torch,
    "torch, no oneDNN": lambda part, given: on_torch(part, given, mkldnn=False),
    "torch, channels last": lambda part, given: on_torch(part, given, channels_last=True),
    "jax": on_jax,
}


# --- correct executions -----------------------------------------------------------------------------------------------


def correct(file: Path) -> Iterator[dict[str, Any]]:
    """A row per sum layer of the model and correct execution of it."""
    given = inputs_of(file)
    for name in ("onnxruntime", "openvino-f32"):
        try:
            deployed = deploy(str(file), runtime(name), given, 600)
        except SpecgradError as error:
            yield {"model": file.stem, "runtime": name, "refused": str(error)[:200]}
            continue
        if deployed.answer.outcome != "answers":
            yield {"model": file.stem, "runtime": name, "refused": deployed.answer.reason[:200]}
            continue
        for layer, part, args, got in layers_of(deployed):
            runs = {name: lambda part, args, got=got: got}
            if why := why_passed_over(deployed, part, got):
                yield {"model": file.stem, "runtime": name, "layer": layer, "judged": False, "why": why}
                continue
            yield from _rows(file, layer, part, args, runs | (ENGINES if name == "onnxruntime" else {}))
        for level in LEVELS if name == "onnxruntime" else ():
            for layer, part, args, got in layers_of(at_level(deployed, file, given, level)):
                if why_passed_over(deployed, part, got):
                    continue
                yield from _rows(file, layer, part, args, {f"{name}, {level}": lambda part, args, got=got: got})


def at_level(deployed: Any, file: Path, given: Sequence[Array], level: str) -> Any:
    """The same run with another level of optimisation: every value that was known, computed anew."""
    import onnx
    import onnxruntime

    model = onnx.load(file)
    names = {p: n for n, p in deployed.graph.values.items()}
    own = [i.name for i in model.graph.input] + [o.name for o in model.graph.output]
    wanted = [names[p] for p in deployed.known if p in names and names[p] not in own]
    model.graph.output.extend(onnx.ValueInfoProto(name=n) for n in dict.fromkeys(wanted))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, LEVELS[level])
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feeds = dict(zip(open_model(str(file)).names, given, strict=True))
    values = dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True))
    return replace(deployed, known=known_values(deployed.graph, {**feeds, **values}))


def _rows(
    file: Path, layer: str, part: Graph, args: Sequence[Array], runs: Mapping[str, Callable[..., Array]]
) -> Iterator[dict[str, Any]]:
    """A row per execution of one layer."""
    start = time.process_time()
    estimate = usual_error(part, as_numbers(part, args), reference_backend(part))
    seconds = time.process_time() - start
    kinds = [n.op.name for n in part.nodes if n.args]
    for name, execute in runs.items():
        try:
            got = execute(part, args)
        except Exception as error:
            yield {"model": file.stem, "runtime": name, "layer": layer, "refused": str(error)[:200]}
            continue
        found = compare(got, estimate, np.ones(got.shape, bool), channel_axis(part))
        row = {"model": file.stem, "runtime": name, "layer": layer, "op": kinds, "shape": list(got.shape)}
        row |= {"seconds": round(seconds, 4)}
        yield row | ({"judged": False} if found is None else {"judged": True, "t": found.t, **found.to_json()})


# --- whole models ---------------------------------------------------------------------------------------------------


def whole(file: Path) -> Iterator[dict[str, Any]]:
    """A row per runtime: the largest difference of an output from the exact one, beside the estimated deviation."""
    given = inputs_of(file)
    model = open_model(str(file))
    graph = model.graph_for(given, "usual")
    formats = getattr(graph, "formats", {})
    estimate = usual_error(graph, given, "torch", formats)
    for name, outputs in _outputs(file, graph, given, bool(formats)):
        row = {"model": file.stem, "runtime": name, "whole": True}
        try:
            run = compare_run(outputs(), estimate)
        except Exception as error:
            yield row | {"refused": str(error)[:200]}
            continue
        yield row | ({"judged": False} if run is None else {"judged": True, "times": run.times, **run.to_json()})


def _outputs(
    file: Path, graph: Graph, given: Sequence[Array], other_formats: bool
) -> Iterator[tuple[str, Callable[[], Sequence[Array]]]]:
    """(runtime, a run of the whole model) of ONNX Runtime at four levels, OpenVINO, PyTorch and JAX."""
    for level in (*LEVELS, "all"):
        yield f"onnxruntime, {level}", lambda level=level: by_onnxruntime(file, given, level)
    yield "openvino-f32", lambda: deploy(str(file), runtime("openvino-f32"), given, 600).answer.arrays
    if other_formats:  # compiled graphs are float32 all through
        return
    yield "torch", lambda: _tuple(on_torch(graph, given))
    yield "jax", lambda: _tuple(on_jax(graph, given))


def by_onnxruntime(file: Path, given: Sequence[Array], level: str) -> Sequence[Array]:
    """The outputs of a model by ONNX Runtime at one level of optimisation, nothing exposed."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, LEVELS.get(level, "ORT_ENABLE_ALL"))
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(zip(open_model(str(file)).names, given, strict=True))))


def _tuple(outputs: Any) -> Sequence[Array]:
    return [np.asarray(a) for a in (outputs if isinstance(outputs, tuple | list) else [outputs])]


# --- planted faults ---------------------------------------------------------------------------------------------------


def _to_bits(w: Array, bits: int) -> Array:
    m, e = np.frexp(w.astype(np.float64))
    return np.ldexp(np.rint(m * 2.0**bits) / 2.0**bits, e).astype(np.float32)


def _int16(w: Array) -> Array:
    axes = tuple(range(1, w.ndim))
    scale = np.maximum(np.abs(w).max(axes, keepdims=True), 1e-30) / 32767
    return (np.rint(w / scale) * scale).astype(np.float32)


def _drop(share: float) -> Callable[[Array], Array]:
    def drop(w: Array) -> Array:
        flat = w.reshape(-1).copy()
        flat[np.argsort(np.abs(flat))[int(share * (flat.size - 1))]] = 0
        return flat.reshape(w.shape)

    return drop


def _gain(g: float) -> Callable[[Array], Array]:
    return lambda w: (w.astype(np.float64) * (1 + g)).astype(np.float32)


def _flip(w: Array) -> Array:
    flat = w.reshape(-1).copy()
    flat[np.argsort(np.abs(flat))[flat.size // 2]] *= -1
    return flat.reshape(w.shape)


def _one_channel(w: Array) -> Array:
    w = w.copy()
    w[0] *= np.float32(1 + 1e-4)
    return w


WEIGHTS: dict[str, Callable[[Array], Array]] = {
    "weights of 11 bits": lambda w: _to_bits(w, 11),
    "weights of 14 bits": lambda w: _to_bits(w, 14),
    "weights in float16": lambda w: w.astype(np.float16).astype(np.float32),
    "weights in bfloat16": lambda w: _to_bits(w, 8),
    "weights in int16 per channel": _int16,
    **{f"weights times 1 + {g:g}": _gain(g) for g in (1e-3, 1e-4, 1e-5)},
    "smallest weight lost": _drop(0.0),
    "median weight lost": _drop(0.5),
    "large weight lost": _drop(0.9),
    "median weight negated": _flip,
    "first channel times 1 + 1e-4": _one_channel,
}


def _smallest_lost(b: Array) -> Array:
    b = b.copy()
    b.flat[int(np.argmin(np.abs(np.where(b == 0, np.inf, b))))] = 0
    return b


BIASES: dict[str, Callable[[Array], Array]] = {
    "bias in float16": lambda b: b.astype(np.float16).astype(np.float32),
    "bias in bfloat16": lambda b: _to_bits(b, 8),
    "smallest bias lost": _smallest_lost,
    "bias lost": np.zeros_like,
}


def _stale(x: Array) -> Array:
    x = x.copy()
    axis = 1 if x.ndim > 2 and x.shape[1] > 1 else x.ndim - 1
    index = [slice(None)] * x.ndim
    before = list(index)
    index[axis], before[axis] = slice(-1, None), slice(-2, -1)
    x[tuple(index)] = x[tuple(before)]
    return x


INPUTS: dict[str, Callable[[Array], Array]] = {
    "input in float16": lambda x: np.clip(x, -60000, 60000).astype(np.float16).astype(np.float32),
    "input in bfloat16": lambda x: _to_bits(x, 8),
    "last input channel is stale": _stale,
}


def _repeat(y: Array) -> Array:
    y = y.copy()
    y[..., -1] = y[..., -2]
    return y


def _swap(y: Array) -> Array:
    axis = 1 if y.ndim > 2 else y.ndim - 1
    rows = np.moveaxis(y, axis, 0).reshape(y.shape[axis], -1).astype(np.float64)
    apart = ((rows[:, None] - rows[None]) ** 2).sum(-1) if len(rows) <= 512 and rows.size < 10**6 else None
    i, j = 0, 1
    if apart is not None:
        np.fill_diagonal(apart, np.inf)
        i, j = np.unravel_index(apart.argmin(), apart.shape)
    y = np.moveaxis(y.copy(), axis, 0)
    y[[i, j]] = y[[j, i]]
    return np.moveaxis(y, 0, axis)


OUTPUTS: dict[str, Callable[[Array], Array]] = {
    "output in float16": lambda y: np.clip(y, -60000, 60000).astype(np.float16).astype(np.float32),
    "output plus 1e-4 of its spread": lambda y: y + np.float32(1e-4) * np.float32(y.std()),
    "last column repeats its neighbour": _repeat,
    "two most alike channels swapped": _swap,
    "output cut to 0 below": lambda y: np.maximum(y, np.float32(0)),
}


def faults(part: Graph, args: Sequence[Array]) -> Iterator[tuple[str, Array]]:
    """(fault, what a float32 execution with it gives) of every kind that this layer can have."""
    for kinds, least in ((WEIGHTS, 2), (BIASES, 1)):
        found = [p for p, c in part.constants.items() if c.dtype == np.float32 and _rank(c) >= least and c.size > 1]
        if least == 1:
            found = [p for p in found if _rank(part.constants[p]) == 1]
        for name, change in kinds.items() if found else ():
            other = replace(part, constants={**part.constants, found[0]: change(part.constants[found[0]])})
            yield name, on_torch(other, args)
    for name, change in INPUTS.items() if args[0].ndim and args[0].shape[-1] > 1 else ():
        yield name, on_torch(part, [change(args[0]), *args[1:]])
    y = on_torch(part, args)
    for name, change in OUTPUTS.items() if y.ndim > 1 and min(y.shape[1:]) > 1 else ():
        yield name, change(y)


def _rank(c: Array) -> int:
    return sum(n > 1 for n in c.shape)


def plant(file: Path) -> Iterator[dict[str, Any]]:
    """A row per fault in some layers of the model, drawn by its name."""
    deployed = deploy(str(file), runtime("onnxruntime"), inputs_of(file), 600)
    layers = [x for x in layers_of(deployed) if x[1].constants and x[3].size <= 4 * 10**6]
    layers = [x for x in layers if not why_passed_over(deployed, x[1], x[3])]
    rng = np.random.default_rng(zlib.crc32(f"{file.stem}{SEED}".encode()))
    arithmetic = arithmetic_of(runtime("onnxruntime"))
    for k in sorted(rng.permutation(len(layers))[:MAX_LAYERS_PLANTED]):
        layer, part, args, _ = layers[k]
        numbers, backend = as_numbers(part, args), reference_backend(part)
        (ball,) = expected_balls(part, numbers, arithmetic, backend)
        estimate = usual_error(part, numbers, backend)
        clean = np.sqrt(np.mean((on_torch(part, args) - ball.value) ** 2))
        for fault, got in faults(part, args):
            error = np.sqrt(np.mean((got.astype(np.float64) - ball.value) ** 2))
            verdict = judge_array(layer, got, ball)
            found = compare(got, estimate, np.isfinite(ball.radius), channel_axis(part))
            kind = "unusual" if verdict.kind == "rounding" and found is not None and found.reasons else verdict.kind
            row = {"model": file.stem, "layer": layer, "fault": fault, "shape": list(got.shape), "verdict": kind}
            row |= {
                "proof": verdict.kind,
                "ratio": float(verdict.ratio),
                "times": float(error / clean) if clean else None,
            }
            yield row | ({} if found is None else found.to_json())


# --- the tables -------------------------------------------------------------------------------------------------------


def table(files: Sequence[Path]) -> None:
    """Print what was flagged among correct executions, and what was found among faults."""
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    right = [r for r in rows if "fault" not in r and "refused" not in r and "whole" not in r]
    judged = [r for r in right if r["judged"]]
    flagged = [r for r in judged if r["unusual"]]
    names = {(r["model"], r["layer"]) for r in right}
    covered = {(r["model"], r["layer"]) for r in judged}
    print(
        f"correct executions of sum layers: {len(right):,}; {len(names):,} layers, {len({m for m, _ in names})} models"
    )
    print(
        f"judged: {len(judged):,} executions, {len(covered):,} layers ({100 * len(covered) / max(len(names), 1):.1f} %)"
    )
    print(f"flagged unusual: {len(flagged)}")
    for r in flagged:
        print(f"  {r['model']} {r['layer']} on {r['runtime']}: {'; '.join(r['unusual'])}")
    for kind in sorted({r["runtime"] for r in judged}):
        of = [r for r in judged if r["runtime"] == kind]
        most = {k: max(abs(r[k]) for r in of) for k in ("rms", "channel", "peak")}
        gain = max((abs(r["gain"]) for r in of if r["t"] > 8 and r["cells"] >= 32), default=0.0) * 2**24
        text = ", ".join(f"{k} {v:.2f}" for k, v in most.items())
        print(f"  {kind:24s} {len(of):6,} layers; the largest {text}, gain {gain:.2f} u")
    runs = [r for r in rows if "whole" in r and r.get("judged")]
    if runs:
        times = sorted(r["times"] for r in runs)
        beyond = [r for r in runs if r["unusual"]]
        print(f"whole models: {len(runs)} runs of {len({r['model'] for r in runs})} models; beyond: {len(beyond)}")
        text = f"median {times[len(times) // 2]:.2g}, largest {times[-1]:.2g}, allowed {RUN_FACTOR:g}"
        print(f"  difference over estimated deviation: {text}")
        for r in beyond:
            print(f"  {r['model']} on {r['runtime']}: {r['difference']:.2g} beside {r['usual']:.2g}")
    wrong = [r for r in rows if "fault" in r and r["verdict"] != "exact"]
    for least in (5.0, 2.0, 0.0):
        large = [r for r in wrong if (r["times"] or np.inf) > least]
        by_proof = [r for r in large if r["proof"] == "differs"]
        found = [r for r in large if r["verdict"] != "rounding"]
        share = 100 * len(found) / max(len(large), 1)
        print(
            f"faults above {least:g} times float32's own error: {len(large)}; proven different {len(by_proof)}, "
            f"flagged in all {len(found)} ({share:.1f} %)"
        )
    for fault in sorted({r["fault"] for r in wrong}):
        of = [r for r in wrong if r["fault"] == fault and (r["times"] or np.inf) > 5]
        hits = sum(r["verdict"] != "rounding" for r in of)
        print(f"  {fault:36s} {hits:4d} of {len(of):4d}")


def curve(files: Sequence[Path], out: Path) -> None:
    """Draw the receiver curve: faults flagged over correct executions flagged, as all thresholds move together."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    def score(r: dict[str, Any]) -> float:
        """How many times its threshold the worst of the three sizes is; slopes are left out."""
        rms = r["rms"] / MAX_RMS if r["cells"] >= 32 else 0.0
        return float(max(rms, r["channel"] / MAX_CHANNEL, r["peak"] / MAX_PEAK))

    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    right = np.array([score(r) for r in rows if r.get("judged") and "whole" not in r])
    hidden = [r for r in rows if "fault" in r and r["proof"] == "rounding" and "rms" in r and (r["times"] or 0) > 5]
    wrong = np.array([score(r) for r in hidden])
    moved = np.geomspace(0.05, 20, 200)
    false = np.array([(right > m).mean() for m in moved])
    true = np.array([(wrong > m).mean() for m in moved])
    figure, axes = plt.subplots(figsize=(7, 4))
    axes.plot(np.maximum(false, 0.3 / len(right)), 100 * true, color="#0550ae")
    axes.plot([0.3 / len(right)], [100 * (wrong > 1).mean()], "o", color="#cf222e")
    axes.annotate(
        f"thresholds as fixed: 0 of {len(right):,} flagged", (0.3 / len(right), 100 * (wrong > 1).mean()), (1e-4, 88)
    )
    axes.set(xscale="log", xlabel="share of correct executions that are flagged (left end: none)", ylim=(0, 102))
    axes.set(
        ylabel="% of faults that are flagged",
        title=f"{len(wrong)} faults that the proof calls rounding, above 5 times float32's error",
    )
    axes.grid(color="#d0d7de")
    figure.tight_layout()
    figure.savefig(out, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("correct", "whole", "plant", "table", "curve"))
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", default="", help="models whose name holds this")
    options = parser.parse_args()
    if options.what == "curve":
        curve(options.paths, options.out)
        return
    if options.what == "table":
        table(options.paths)
        return
    import torch

    torch.set_num_threads(1)
    done = set()
    if options.out and options.out.exists():
        done = {json.loads(line)["model"] for line in options.out.read_text().splitlines()}
    files = sorted(options.paths[0].glob("*.onnx"), key=lambda f: f.stat().st_size)
    for file in files:
        if file.stem in done or options.only not in file.stem or not file.with_suffix(".npz").exists():
            continue
        start = time.process_time()
        try:
            rows = list({"plant": plant, "whole": whole, "correct": correct}[options.what](file))
        except SpecgradError as error:
            print(f"{file.stem:32s} refused: {error}", flush=True)
            continue
        flags = sum(bool(r.get("unusual")) for r in rows)
        print(
            f"{file.stem:32s} {len(rows):5d} rows, {flags:4d} flagged, {time.process_time() - start:6.1f} CPU s",
            flush=True,
        )
        with (options.out or Path("/dev/stdout")).open("a") as out:
            out.writelines(json.dumps(r) + "\n" for r in rows)


if __name__ == "__main__":
    main()
