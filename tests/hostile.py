"""Mutants of files, read and then used, in a process of its own that measures them.

    python tests/hostile.py graphs SEED COUNT            saved graphs
    python tests/hostile.py params SEED COUNT            files of parameters
    python tests/hostile.py properties SEED COUNT        VNN-LIB texts
    python tests/hostile.py onnx SEED COUNT              ONNX models
    python tests/hostile.py plan SEED COUNT              and every other reader: READERS of hostile_readers.py

Every mutant is made from its own number, so one that is reported can be made again: SEED its number, COUNT 1.
Prints one JSON object, or one per reader for "readers": verdicts, slowest mutant in CPU seconds, most memory, and what
went wrong.
"""

from __future__ import annotations

import json
import math
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

HERE = Path(__file__).parent
for name in ("", "laws", "interop", "bounds", "graph", "scale"):  # behind what is there: rooms have modules of one name
    sys.path.append(str(HERE / name))
from hostile_readers import READERS  # noqa: E402

MEMORY = 6 * 2**30  # a stop for what the test then reports as too much
SECONDS = 10
CELLS = 20_000  # of all nodes together: what runs in an instant
ENGINES = 0.05  # the share of graphs that are compiled, which takes longer than everything else
Case = Callable[[Random], str]


class TooSlowError(BaseException):
    """Nobody catches this by mistake."""


def peak_mb() -> float:
    """Of this program alone; getrusage would count the process it was forked from."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


# --- what is done with a graph that was read ------------------------------------------------------------------------


def use(graph: Any, rng: Random) -> str:
    """Show, explain, digest and differentiate it; run it, its derivative and its engines if it is small."""
    import specgrad as sg
    from specgrad.graph.explain import explain
    from specgrad.proof.files.certificate import network_digest

    assert str(graph)
    assert graph._repr_html_()
    network_digest(graph)
    for layer in {n.group: n for n in graph.nodes}.values():
        if min(layer.shape, default=1):
            explain(graph, tuple(n - 1 for n in layer.shape), layer.group)
    graphs = [graph]
    if any(graph.nodes[p].kind == "real" for p in graph.input_positions):
        graphs.append(sg.vjp(graph))
    for g in graphs:
        if sum(cells(node) for node in g.nodes) > CELLS:
            return "large"
        inputs = [numbers(g, p, rng) for p in g.input_positions]
        g(*filled(g, inputs))
        if rng.random() < ENGINES:
            run_engines(g, inputs)
    return "used"


def cells(node: Any) -> int:
    """What a node makes, and what its window walks."""
    window = node.params.get("window")
    return math.prod(node.shape) + (10 * math.prod(a.most_taps for a in window.axes) if window is not None else 0)


def numbers(graph: Any, position: int, rng: Random) -> np.ndarray:
    """Small numbers in the format of the graph's weights: PyTorch mixes none."""
    node = graph.nodes[position]
    if node.kind == "index":
        return np.zeros(node.shape, np.int64)
    formats = [a.dtype for a in graph.constants.values() if a.dtype.kind == "f"] or [np.dtype(float)]
    found = np.array([rng.choice((0.0, 1.0, -2.5)) for _ in range(math.prod(node.shape))], formats[0])
    return found.reshape(node.shape)


def filled(graph: Any, inputs: list[Any]) -> Any:
    import specgrad as sg

    by_position = dict(zip(graph.input_positions, inputs, strict=True))
    return sg.tree.transform(lambda _, p: by_position[p], graph.inputs)


def run_engines(graph: Any, inputs: list[np.ndarray]) -> None:
    import jax.numpy as jnp
    import torch

    import specgrad as sg

    sg.compile(graph, "torch")(*filled(graph, [torch.from_numpy(a) for a in inputs]))
    sg.compile(graph, "jax")(*filled(graph, [jnp.asarray(a) for a in inputs]))


# --- formats --------------------------------------------------------------------------------------------------------


def graphs(folder: Path) -> Case:
    from hostile_files import damaged, documents, grown, mutate, repaired

    import specgrad as sg
    from specgrad.graph.files.save import from_json, named_arrays, to_json

    paths = documents(folder)
    originals = {path: path.read_bytes() for path in paths}

    def case(rng: Random) -> str:
        path = rng.choice(paths)
        data = json.loads(originals[path])
        change = rng.choice((mutate, grown))
        for _ in range(rng.choice([1, 1, 2, 4])):
            data = change(data, rng)
        if rng.random() < 0.7:
            data = repaired(data)
        text = json.dumps(data).encode()
        path.write_bytes(damaged(text, rng) if rng.random() < 0.1 else text)
        try:
            graph = sg.load(path)
            assert to_json(from_json(to_json(graph), named_arrays(graph))) == to_json(graph)
            return use(graph, rng)
        finally:
            path.write_bytes(originals[path])

    return case


def params(folder: Path) -> Case:
    from hostile_files import changed_params

    import specgrad as sg

    make = changed_params(folder)

    def case(rng: Random) -> str:
        for leaf in sg.tree.leaves(sg.load_params(make(rng))):
            assert isinstance(leaf, np.ndarray)
        return "used"

    return case


def properties(folder: Path) -> Case:
    from specgrad.properties.vnnlib import read_text
    from test_vnnlib_budgets import mutated

    def case(rng: Random) -> str:
        for part in read_text(mutated(rng)).cases:
            part.outer(), part.nearest
        return "used"

    return case


def onnx(folder: Path) -> Case:
    from mutants import mutant
    from specgrad.interop import from_onnx
    from test_hostile_onnx import write_models

    originals = [p.read_bytes() for p in sorted(write_models(folder).glob("*.onnx"))]
    return lambda rng: use(from_onnx(mutant(rng, originals)), rng)


FORMATS: dict[str, Callable[[Path], Case]] = {
    "graphs": graphs,
    "params": params,
    "properties": properties,
    "onnx": onnx,
    **READERS,
}


# --- the hunt -------------------------------------------------------------------------------------------------------


def attempt(case: Case, number: int) -> tuple[str, str]:
    """Verdict and text: used, large, refused by one of our errors in one line, or bad."""
    from specgrad import SpecgradError

    signal.alarm(3 * SECONDS)
    try:
        return case(Random(number)), ""
    except SpecgradError as error:
        text = str(error)
        return ("refused" if 0 < len(text) < 2000 and text.isprintable() else "unprintable"), text
    except (Exception, TooSlowError) as error:
        where = [f for f in traceback.extract_tb(error.__traceback__) if "src/specgrad" in f.filename][-1:]
        place = "".join(f"{f.filename.partition('src/')[2]}:{f.lineno} " for f in where)
        return "foreign", f"{place}{type(error).__name__}: {str(error)[:200]}"
    finally:
        signal.alarm(0)


def hunt(case: Case, seed: int, count: int) -> dict[str, Any]:
    verdicts: Counter[str] = Counter()
    worst, most, bad = (0.0, -1), (0.0, -1), []
    for number in range(seed, seed + count):
        began, before = time.process_time(), peak_mb()
        verdict, text = attempt(case, number)
        verdicts[verdict] += 1
        spent = time.process_time() - began
        worst, most = max(worst, (spent, number)), max(most, (peak_mb() - before, number))
        if verdict in ("foreign", "unprintable") or spent > SECONDS:
            bad.append({"number": number, "verdict": verdict, "seconds": spent, "text": text})
    return {"verdicts": verdicts, "seconds": worst, "megabytes": most, "peak_mb": peak_mb(), "bad": bad}


def stop(*_: Any) -> None:
    raise TooSlowError(f"over {3 * SECONDS} s")


def main() -> None:
    kinds, seed, count = sys.argv[1:]
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, stop)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, resource.RLIM_INFINITY))
    for kind in READERS if kinds == "readers" else [kinds]:
        with tempfile.TemporaryDirectory() as folder:
            case = FORMATS[kind](Path(folder))
            if kind in ("graphs", "onnx"):
                import jax.numpy  # noqa: F401 - what they take is not what a mutant takes
                import torch  # noqa: F401
            print(json.dumps({"kind": kind, "start_mb": peak_mb(), **hunt(case, int(seed), int(count))}), flush=True)


if __name__ == "__main__":
    main()
