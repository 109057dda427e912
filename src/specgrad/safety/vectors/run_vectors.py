"""Run test vectors from their files alone: python run_vectors.py [FOLDER]. Needs numpy and onnxruntime, nothing else.

Put your own target into `run`: it gets the path of an ONNX file and the inputs by name, and gives the outputs in order.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np


def run(path: Path, feeds: dict[str, Any]) -> Any:
    """Run an ONNX file on the target with inputs `feeds` by name and return its outputs in order; replace this by your
    own target.
    """
    import onnxruntime

    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, feeds)


def judge(got: Any, expected: Any, radius: Any, signs: bool) -> tuple[str, int]:
    """Return what is wrong with the output `got` ("" if nothing), and how many open cells differ from `expected`, the
    contract's value.

    A cell may be off by its `radius`, which is inf where it is open; `signs`: a zero must also have the right sign.
    """
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return f" is {got.dtype}{got.shape}, must be {expected.dtype}{expected.shape}", 0
    g, e = got.astype(np.float64), expected.astype(np.float64)
    with np.errstate(all="ignore"):
        near = np.abs(g - e) <= radius
    same = (g == e) | (np.isnan(g) & np.isnan(e))
    right = np.where(np.isfinite(e), near & np.isfinite(g), same)
    if signs:
        right &= (e != 0) | (np.signbit(g) == np.signbit(e))
    is_open = np.isinf(radius)
    wrong = np.argwhere(~right & ~is_open)
    if len(wrong):
        i = tuple(int(n) for n in wrong[0])
        text = f"{list(i)} is {float(g[i])}, must be {float(e[i])} within {radius[i]:.3g}"
        return f"{text} ({len(wrong)} of {g.size} cells)", 0
    return "", int((is_open & ~same).sum())


def run_case(folder: Path, case: dict[str, Any]) -> tuple[str, str]:
    """Run one case, an entry of the index in `folder`; return (verdict, detail). Verdicts are ok, differs and
    refuses.
    """
    place = folder / case["folder"]
    feeds = {i["name"]: np.load(place / i["file"]) for i in case["inputs"]}
    try:
        results = run(place / "model.onnx", feeds)
    except Exception as error:
        return "refuses", f"{type(error).__name__}: {error}".splitlines()[0][:200]
    other = 0
    for got, out in zip(results, case["outputs"], strict=True):
        expected, radius = np.load(place / out["expected"]), np.load(place / out["radius"])
        wrong, free = judge(np.asarray(got), expected, radius, case["zero_signs"])
        if wrong:
            return "differs", f"{out['name']}{wrong}"
        other += free
    return "ok", f"{other} open cells have another value than the contract's" if other else ""


def main(folder: Path) -> int:
    """Run all cases of a folder and print the failures; return the exit code, 1 if some differ."""
    counts = {"ok": 0, "differs": 0, "refuses": 0}
    for case in json.loads((folder / "index.json").read_text(encoding="utf-8"))["cases"]:
        verdict, detail = run_case(folder, case)
        counts[verdict] += 1
        if verdict != "ok":
            print(case["tag"], verdict, detail, f"({case['note']})" if case["note"] else "")
    print(", ".join(f"{n} {verdict}" for verdict, n in counts.items()))
    return 1 if counts["differs"] else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent))
