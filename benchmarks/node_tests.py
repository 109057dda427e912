"""Node tests of onnx on runtimes: is every output that they give inside what is proven, and does onnx's pair let it
pass?

    python benchmarks/node_tests.py | tee benchmarks/node_tests.txt        # two minutes of CPU time
    python benchmarks/node_tests.py --folder onnx/backend/test/data/node   # tests that are stored in files

What is proven of each float output is a ball per cell (specgrad tolerance --onnx-node-tests). Each runtime gets the
model and the inputs, in a process of its own. An output outside the ball is a finding about the runtime, the test or
us, and is named; one inside must pass the pair that is called enough, or the script fails. One that is inside and
fails onnx's own pair is a correct execution that onnx's test refuses.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from specgrad.check import runtime
from specgrad.check.tolerances.node_tests.judge import Cells, JudgedTest, judge_test
from specgrad.check.tolerances.node_tests.load import BFLOAT16_RTOL, NodeTest, installed_tests, stored_tests
from specgrad.interop.onnx.file import DTYPES
from specgrad.process import Process
from specgrad.rounding import FORMATS, Ball

RUNTIMES = {"onnxruntime": "onnxruntime", "onnx-reference": "onnx"}
SECONDS = 60


def feeds_of(test: NodeTest) -> dict[str, Any] | None:
    """The inputs by name in the types that the model declares; None where NumPy has no such type."""
    feeds = {}
    for end, array in zip(test.model.graph.input, test.inputs, strict=True):
        dtype = DTYPES.get(end.type.tensor_type.elem_type)
        if array is None or array.dtype != dtype:
            return None
        feeds[end.name] = array
    return feeds


def outputs_on(process: Process, name: str, test: NodeTest, feeds: dict[str, Any]) -> tuple[str, list[Any]]:
    """How a run ended, and the outputs."""
    model = np.frombuffer(test.model.SerializeToString(), np.uint8)
    answer = process.run(runtime(name).model, feeds, [model])
    return answer.outcome, list(answer.arrays)


def compared(test: NodeTest, judged: JudgedTest, outputs: list[Any]) -> Iterator[tuple[str, str]]:
    """(word, text) per float output of which something is proven: inside, refused by onnx's pair, outside."""
    for output, got, stored in zip(judged.outputs, outputs, test.outputs, strict=True):
        if output.state != "proven" or stored is None:
            continue
        got = np.asarray(got)
        if got.dtype.itemsize == 2 and output.dtype == "bfloat16":  # whose type NumPy does not know
            got = (got.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        if got.shape != output.exact.shape or got.dtype != stored.dtype:
            yield "outside", f"{test.name} {output.name}: {got.dtype} {got.shape}"
            continue
        wide = got.astype(np.float64)
        inside = Ball(output.exact, output.radius).contains(wide)
        if not inside.all():
            place = tuple(int(i) for i in np.argwhere(~inside)[0])
            cells = Cells(stored.astype(np.float64), Ball(output.exact, output.radius), FORMATS[output.dtype])
            cell = cells.at(place)
            text = f"{(~inside).sum()} of {inside.size} cells, as {list(place)}: {wide[place]:.9g}, correct is"
            yield "outside", f"{test.name} {output.name}: {text} {cell.low:.9g} to {cell.high:.9g}"
            continue
        np.testing.assert_allclose(got, stored, rtol=output.rtol, atol=output.atol)  # else a pair is false
        yield "inside", ""
        rtol = max(test.rtol, BFLOAT16_RTOL) if output.dtype == "bfloat16" else test.rtol
        passes = np.isclose(got, stored, rtol=rtol, atol=test.atol, equal_nan=True)
        if not passes.all():
            yield "refused by onnx's pair", f"{test.name} {output.name}: {(~passes).sum()} of {passes.size} cells"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path)
    folder = parser.parse_args().folder
    tests, source = (stored_tests(folder), "a folder") if folder else installed_tests()
    packages = ", ".join(f"{package} {version(package)}" for package in RUNTIMES.values())
    print(f"{len(tests):,} node tests of {source}; {packages}; float32 fused")
    start = time.process_time()
    judged = [judge_test(test) for test in tests]
    print(f"judged in {time.process_time() - start:.0f} s of CPU time")
    for name in RUNTIMES:
        counts, named = Counter(), {"outside": [], "refused by onnx's pair": []}
        with Process(seconds=SECONDS, environment=runtime(name).environment) as process:
            for test, known in zip(tests, judged, strict=True):
                if not any(output.state == "proven" for output in known.outputs):
                    continue
                feeds = feeds_of(test)
                outcome, outputs = ("another type", []) if feeds is None else outputs_on(process, name, test, feeds)
                counts[f"tests: {outcome}"] += 1
                for word, text in compared(test, known, outputs) if outcome == "answers" else ():
                    counts[f"outputs: {word}"] += 1
                    if text:
                        named[word].append(text)
        print(f"\n{name}")
        for word, count in sorted(counts.items()):
            print(f"  {word:<36}{count:>6}")
        for word, texts in named.items():
            for text in texts:
                print(f"  {word}: {text}")


if __name__ == "__main__":
    main()
