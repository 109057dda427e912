"""How many samples a second does preserve judge, on one core, beside ONNX Runtime, which only runs the network?

python benchmarks/dataset_rates.py                 # both networks, printed
python benchmarks/dataset_rates.py two-conv        # one of them
python benchmarks/dataset_rates.py --samples 100   # fewer samples

The networks are trained here on scikit-learn's digits, as 32x32 pixels (benchmarks/trained.py): two convolutions of 8
and 16 channels, each with a ReLU and a maximum of 2x2, and a matrix product; and LeNet-5. Samples are the 500 test
images, and each of them with noise, as often as it takes. Seconds are those of the processor, one thread, after the
network was read. Every sample is judged: what forward balls leave open goes to crown, and then orders of sums are
searched that decide differently. "One at a time" is preserve without batches, on the first samples.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import numpy as np
import onnxruntime
import torch
from torch import nn

from specgrad.check.decisions import PreserveResult, preserve
from specgrad.check.decisions.forward_batches import ForwardBatches
from specgrad.interop import to_onnx
from specgrad.interop.model import open_model
from trained import Task, _task, digits_data

ALONE = 48  # samples that are judged one at a time
NOISE = 1 / 16  # one step of a pixel, its standard deviation


def two_conv_module() -> nn.Module:
    layers = [nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16 * 64, 10))


def lenet_module() -> nn.Module:
    features = [nn.Conv2d(1, 6, 5), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5), nn.Tanh(), nn.AvgPool2d(2)]
    dense = [nn.Flatten(), nn.Linear(400, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10)]
    return nn.Sequential(*features, *dense)


def enlarged(times: int) -> tuple[np.ndarray, ...]:
    """The digits with every pixel `times` as wide and as high."""
    x, y, test_x, test_y = digits_data()
    return x.repeat(times, 2).repeat(times, 3), y, test_x.repeat(times, 2).repeat(times, 3), test_y


NETWORKS: dict[str, Callable[[], Task]] = {
    "two-conv": lambda: _task("two-conv", two_conv_module, lambda: enlarged(4), epochs=20, rate=3e-3),
    "lenet": lambda: _task("LeNet-5", lenet_module, lambda: enlarged(4), epochs=20, rate=3e-3),
}


def samples_of(task: Task, count: int) -> np.ndarray:
    """The test images, then the same with noise, as many as are asked for."""
    rng = np.random.default_rng(0)
    rounds = [task.x]
    while sum(map(len, rounds)) < count:
        rounds.append((task.x + NOISE * rng.standard_normal(task.x.shape)).astype(np.float32))
    return np.concatenate(rounds)[:count]


def judged(graph: Any, x: np.ndarray) -> tuple[PreserveResult, float]:
    """The verdicts, and samples per second of one core."""
    start = time.process_time()
    result = preserve(graph, x, runtimes=())
    return result, len(x) / (time.process_time() - start)


def one_at_a_time(graph: Any, x: np.ndarray) -> float:
    """Samples per second without batches."""
    settled = ForwardBatches.settled
    try:
        ForwardBatches.settled = lambda self, number: None  # type: ignore[method-assign]
        return judged(graph, x)[1]
    finally:
        ForwardBatches.settled = settled  # type: ignore[method-assign]


def onnx_runtime(graph: Any, x: np.ndarray) -> float:
    """Samples per second of ONNX Runtime, one thread, one image a call."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(to_onnx(graph).SerializeToString(), options, ["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    for k in range(20):
        session.run(None, {name: x[k : k + 1]})
    start = time.process_time()
    for k in range(len(x)):
        session.run(None, {name: x[k : k + 1]})
    return len(x) / (time.process_time() - start)


def lines(name: str, count: int) -> Iterator[str]:
    task = NETWORKS[name]()
    parameters = sum(p.numel() for p in task.module.parameters())
    yield f"{task.name}: {parameters:,} parameters, {100 * task.accuracy:.1f} % of {len(task.y)} test images right"
    x = samples_of(task, count)
    graph = open_model(task.module, "preserve").graph_for([x[:1]], "preserve")
    preserve(graph, x[:2], runtimes=())
    alone = one_at_a_time(graph, x[:ALONE])
    result, rate = judged(graph, x)
    ratios = np.array([s.ratio for s in result.samples])
    bare = onnx_runtime(graph, x)
    yield f"  one at a time   {alone:8.1f} samples a second"
    yield f"  in batches      {rate:8.1f}, {rate / alone:.1f} times as many; {result}"
    yield f"  ONNX Runtime    {bare:8.0f}, {bare / rate:.1f} times as many as in batches"
    tenths = ", ".join(f"{q} %: {np.percentile(ratios, q):.3g}" for q in (0, 1, 10, 50, 90))
    yield f"  margin over tolerance, proven above 1: {tenths}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", choices=[[], *NETWORKS], default=[])
    parser.add_argument("--samples", type=int, default=4000)
    args = parser.parse_args()
    torch.set_num_threads(1)
    for name in args.networks or NETWORKS:
        for line in lines(name, args.samples):
            print(line, flush=True)


if __name__ == "__main__":
    main()
