"""Test vectors: answers against loops over fractions written here, classes that are counted, files that stand alone."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

jsonschema = pytest.importorskip("jsonschema")
onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("flint")

from specgrad.errors import ParameterError  # noqa: E402
from specgrad.safety.vectors import OPERATORS, vectors, write_pack  # noqa: E402
from specgrad.safety.vectors import run_vectors as runner  # noqa: E402
from specgrad.safety.vectors.case import VectorCase  # noqa: E402
from specgrad.safety.vectors.expected import EMPTY, answers  # noqa: E402

FEW = ["Conv", "ConvInteger", "MaxPool", "QuantizeLinear", "Add", "Softmax"]


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vectors") / "pack"
    write_pack(folder, FEW)
    return folder


def index(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "index.json").read_text())


# --- answers, against loops that know nothing of the library ----------------------------------------------------------


def float_of(q: Fraction, dtype: Any) -> float:
    """The nearest number of a type: numpy's candidates around it, compared exactly."""
    most = np.finfo(dtype).max
    if abs(q) >= Fraction(float(most)) + Fraction(float(most - np.nextafter(most, dtype.type(0)))) / 2:
        return math.inf if q > 0 else -math.inf
    with np.errstate(all="ignore"):
        near = dtype.type(float(q))
        some = [near, np.nextafter(near, dtype.type(-np.inf)), np.nextafter(near, dtype.type(np.inf))]
    some = [s for s in some if np.isfinite(s)]
    best = min(abs(Fraction(float(s)) - q) for s in some)
    nearest = [s for s in some if abs(Fraction(float(s)) - q) == best]
    return float(next((s for s in nearest if int(s.view(f"u{dtype.itemsize}")) % 2 == 0), nearest[0]))


def cells_of(case: VectorCase) -> dict[tuple[int, ...], list[tuple[tuple[int, ...], tuple[int, ...]]]]:
    """Output cell -> (input cell, tap) of every tap inside: strides, dilations and pads by ONNX's text."""
    a, x = case.attributes, case.arguments["x"]
    kernel = tuple(a["kernel_shape"])
    d = len(kernel)
    strides, dilations = a.get("strides", [1] * d), a.get("dilations", [1] * d)
    pads = a.get("pads", [0] * 2 * d)
    sizes = x.shape[-d:]
    out = [(sizes[i] + pads[i] + pads[d + i] - dilations[i] * (kernel[i] - 1) - 1) // strides[i] + 1 for i in range(d)]
    found: dict[Any, list[Any]] = {}
    for o in product(*map(range, out)):
        found[o] = []
        for t in product(*map(range, kernel)):
            at = tuple(o[i] * strides[i] + t[i] * dilations[i] - pads[i] for i in range(d))
            if all(0 <= p < n for p, n in zip(at, sizes, strict=True)):
                found[o].append((at, t))
    return found


def plain(operator: str, *words: str) -> list[Any]:
    """Cases without auto_pad and ceil_mode, which the loops here do not know."""
    some = [v for v in vectors(OPERATORS[operator]) if v.zone.word in words]
    return [v for v in some if "auto_pad" not in v.case.attributes and not v.case.attributes.get("ceil_mode")]


def test_convolutions() -> None:
    checked = 0
    for v in plain("Conv", "RANK1", "RANK2", "STRIDE", "DILATION", "ASYMPAD", "GROUP", "DEPTH", "BIAS", "SUBNORMAL"):
        x, w, b = (v.case.arguments.get(name) for name in ("x", "w", "b"))
        groups, y = v.case.attributes.get("group", 1), v.answers["y"]
        for n, o in product(range(x.shape[0]), range(w.shape[0])):
            first = o // (w.shape[0] // groups) * w.shape[1]
            for cell, taps in cells_of(v.case).items():
                total = Fraction(0) if b is None else Fraction(float(b[o]))
                for (at, t), c in product(taps, range(w.shape[1])):
                    total += Fraction(float(x[(n, first + c, *at)])) * Fraction(float(w[(o, c, *t)]))
                assert float(y.value[(n, o, *cell)]) == float_of(total, x.dtype), v.tag
                assert y.radius[(n, o, *cell)] >= abs(Fraction(float(y.value[(n, o, *cell)])) - total)
                checked += 1
    assert checked > 500


def test_convolutions_of_integers_pad_with_the_zero_point() -> None:
    """x - x_zero inside, 0 in the padding; holes between taps are no taps."""
    for v in vectors(OPERATORS["ConvInteger"]):
        x, w = v.case.arguments["x"].astype(int), v.case.arguments["w"].astype(int)
        zero, w_zero = (
            np.asarray(0 if a is None else a).astype(int) for a in [v.case.arguments[k] for k in ("x_zero", "w_zero")]
        )
        groups = v.case.attributes.get("group", 1)
        for n, o in product(range(x.shape[0]), range(w.shape[0])):
            less = int(w_zero[o]) if w_zero.ndim else int(w_zero)
            first = o // (w.shape[0] // groups) * w.shape[1]
            for cell, taps in cells_of(v.case).items():
                some = product(taps, range(w.shape[1]))
                total = sum((x[(n, first + c, *at)] - int(zero)) * (w[(o, c, *t)] - less) for (at, t), c in some)
                assert v.answers["y"].value[(n, o, *cell)] == total, v.tag
        assert not v.answers["y"].radius.any()


def test_the_examples_of_the_digest() -> None:
    """x = 5, zero point 3, 3x3 ones, pad 1: 2, where the profile's text gives -22."""
    padded = next(v for v in vectors(OPERATORS["ConvInteger"]) if v.zone.word == "PADZERO")
    assert padded.answers["y"].value.tolist() == [[[[2]]]]


def test_largest_cells_and_empty_windows() -> None:
    for v in plain(
        "MaxPool", "RANK2", "STRIDE", "GAP", "DILATION", "ASYMPAD", "INF", "NAN", "NEGINF", "BOUND", "EMPTY"
    ):
        x, y = v.case.arguments["x"], v.answers["y"]
        for n, c in product(*map(range, x.shape[:2])):
            for cell, taps in cells_of(v.case).items():
                got, some = float(y.value[(n, c, *cell)]), [float(x[(n, c, *at)]) for at, _ in taps]
                if not some:
                    assert (got, y.radius[(n, c, *cell)], y.why) == (0.0, math.inf, EMPTY)
                elif any(map(math.isnan, some)):
                    assert math.isnan(got)
                    assert y.radius[(n, c, *cell)] == 0
                else:
                    assert (got, y.radius[(n, c, *cell)]) == (max(some), 0)


def test_quantised_numbers() -> None:
    for v in vectors(OPERATORS["QuantizeLinear"]):
        x, scale, zero = (v.case.arguments[k] for k in ("x", "scale", "zero"))
        y, axis = v.answers["y"], v.case.attributes.get("axis", 1)
        ends = np.iinfo(y.value.dtype)
        for cell in np.ndindex(x.shape):
            if not np.isfinite(x[cell]):
                assert math.isinf(y.radius[cell]) == math.isnan(x[cell])
                assert math.isnan(x[cell]) or y.value[cell] == (ends.max if x[cell] > 0 else ends.min)
                continue
            s, z = (p if p is None or p.ndim == 0 else p[cell[axis]] for p in (scale, zero))
            q = round(Fraction(float(x[cell])) / Fraction(float(s))) + (0 if z is None else int(z))
            assert y.value[cell] == min(max(q, ends.min), ends.max), v.tag


def test_sums_products_and_quotients() -> None:
    checked = 0
    for name, fn in {"Add": lambda a, b: a + b, "Sub": lambda a, b: a - b, "Mul": lambda a, b: a * b,
                     "Div": lambda a, b: a / b}.items():  # fmt: skip
        for v in vectors(OPERATORS[name]):
            a, b = np.broadcast_arrays(v.case.arguments["a"], v.case.arguments["b"])
            with np.errstate(all="ignore"):
                theirs = {"Add": a + b, "Sub": a - b, "Mul": a * b, "Div": a / b}[name]  # numpy's are IEEE's
            y = v.answers["y"]
            for cell in np.ndindex(a.shape):
                p, q, got = float(a[cell]), float(b[cell]), float(y.value[cell])
                if math.isfinite(p) and math.isfinite(q) and (q or name != "Div"):
                    wanted = float_of(fn(Fraction(p), Fraction(q)), a.dtype)
                    assert got == wanted, v.tag
                ieee = float(theirs[cell])
                assert got == ieee or (math.isnan(got) and math.isnan(ieee)), (v.tag, p, q)
                assert got != 0 or not v.case.signs or math.copysign(1, got) == math.copysign(1, ieee)
                checked += 1
    assert checked > 3000


@pytest.mark.parametrize("name", ["Exp", "Log", "Sqrt", "Tanh", "Sigmoid"])
def test_functions_against_decimals(name: str) -> None:
    """mpmath-free: the decimal module has exp, ln and sqrt of its own, with 60 digits here."""
    from decimal import Context, Decimal, localcontext

    with localcontext(Context(prec=60, Emax=10**6, Emin=-(10**6))):
        one = Decimal(1)
        functions = {
            "Exp": lambda x: x.exp(),
            "Log": lambda x: x.ln(),
            "Sqrt": lambda x: x.sqrt(),
            "Tanh": lambda x: (x.exp() - (-x).exp()) / (x.exp() + (-x).exp()),
            "Sigmoid": lambda x: one / (one + (-x).exp()),
        }
        for v in vectors(OPERATORS[name]):
            x, y = v.case.arguments["x"], v.answers["y"]
            for cell in np.ndindex(x.shape):
                p, got = float(x[cell]), float(y.value[cell])
                if not math.isfinite(p) or abs(p) > 1000 or (name in ("Log", "Sqrt") and p <= 0):
                    continue
                if name == "Tanh" and abs(p) < 1e-9:
                    continue  # 60 digits cancel
                assert got == float_of(Fraction(functions[name](Decimal(p))), x.dtype), (v.tag, p)


def test_matrices_against_the_onnx_reference_in_float64() -> None:
    """An independent implementation, in a wider format, within the radius."""
    from onnx.reference import ReferenceEvaluator

    from specgrad.safety.vectors.model import model

    for name in ("MatMul", "Gemm", "BatchNormalization", "AveragePool", "Resize", "LeakyRelu"):
        for v in vectors(OPERATORS[name]):
            if v.kind != "FLOAT" or v.zone.word in ("INF", "NAN", "SPECIAL", "SAME", "CEIL", "COUNTPAD"):
                continue
            wide = {
                k: a if a is None or k in ("sizes", "scales") else a.astype(float) for k, a in v.case.arguments.items()
            }
            case = VectorCase(name, wide, v.case.attributes, v.case.stored)
            with np.errstate(all="ignore"):
                (theirs,) = ReferenceEvaluator(model(case)).run(None, case.fed)
            y = v.answers["y"]
            assert (np.abs(theirs - y.value) <= y.radius + 1e-12 * np.abs(theirs)).all(), v.tag


# --- classes ----------------------------------------------------------------------------------------------------------


def test_every_class_has_a_case_and_tags_are_unique(pack: Path) -> None:
    found = index(pack)
    for name in FEW:
        classes = found["operators"][name]
        assert all(row["cases"] for row in classes["classes"]), name
        assert classes["covered"] == len(classes["classes"])
        assert classes["listed"] == classes["covered"] + len(classes["missing"])
    tags = [case["tag"] for case in found["cases"]]
    assert len(tags) == len(set(tags))
    assert {case["tag"].split("_")[1] for case in found["cases"]} == {name.upper() for name in FEW}
    assert not found["complete"]
    assert "does not guarantee" in found["incompleteness"]


def test_a_note_on_transposed_factors_stands_where_one_is_transposed() -> None:
    cases = [v.case for v in vectors(OPERATORS["Gemm"]) if v.zone.word == "TRANS" and v.kind == "FLOAT"]
    noted = {(c.attributes["transA"], c.attributes["transB"]): "transA" in c.note for c in cases}
    assert noted == {(0, 0): False, (0, 1): True, (1, 0): True, (1, 1): True}


def test_records_name_their_operator_and_no_class_twice() -> None:
    for name, record in OPERATORS.items():
        assert record.operator == name
        assert len(record.listed) == len(set(record.listed))
        assert all(zone.word.isalnum() and zone.word.isupper() and zone.text for zone in record.zones)


def test_an_unknown_operator_is_named(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="no classes of 'MaxPol' are known; there are Conv"):
        write_pack(tmp_path / "p", ["MaxPol"])


# --- files ------------------------------------------------------------------------------------------------------------


def digest(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_twice_the_same_bytes_and_another_seed_others(tmp_path: Path) -> None:
    names = ["ConvInteger", "Tanh", "Resize"]
    for place, seed in (("a", 3), ("b", 3), ("c", 4)):
        write_pack(tmp_path / place, names, seed=seed)
    first, second, third = (digest(tmp_path / p) for p in "abc")
    assert first == second
    assert first.keys() == third.keys()
    assert first != third


def test_the_index_fits_its_schema_and_its_digests_fit(pack: Path) -> None:
    import hashlib

    schema = json.loads((pack / "schema.json").read_text())
    found = index(pack)
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(found, schema)
    for case in found["cases"]:
        for name, wanted in case["sha256"].items():
            assert hashlib.sha256((pack / case["folder"] / name).read_bytes()).hexdigest() == wanted
    assert json.loads((pack / found["cases"][0]["folder"] / "exact.json").read_text()).keys() == {"y"}


def test_models_are_valid_and_declare_everything(pack: Path) -> None:
    for case in index(pack)["cases"][::7]:
        model = onnx.load(pack / case["folder"] / "model.onnx")
        onnx.checker.check_model(model, full_check=case["zone"] not in ("SAME", "CEIL"))
        for info in (*model.graph.input, *model.graph.output):
            assert info.type.tensor_type.elem_type
            assert all(d.HasField("dim_value") for d in info.type.tensor_type.shape.dim)


def test_a_folder_with_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="is not empty"):
        write_pack(tmp_path, ["Flatten"])
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]
    assert write_pack(tmp_path, ["Flatten"], force=True).cases > 0


def test_the_folder_runs_by_itself(pack: Path) -> None:
    """Numpy and ONNX Runtime alone: no path of ours, no module of ours."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    program = "import sys, pathlib; sys.path.insert(0, sys.argv[1]); import run_vectors; "
    program += (
        "code = run_vectors.main(pathlib.Path(sys.argv[1])); assert 'specgrad' not in sys.modules; sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(pack)], capture_output=True, text=True, env=environment, timeout=300
    )
    wrong = [line.split()[0] for line in done.stdout.splitlines() if " differs " in line]
    assert done.returncode == 1, done.stderr[-500:]
    assert {tuple(tag.split("_")[1:4:2]) for tag in wrong} == {
        ("MAXPOOL", "NAN"),
        ("MAXPOOL", "NEGINF"),
        ("MAXPOOL", "SAME"),
        ("QUANTIZELINEAR", "SPECIAL"),
    }


# --- planted mistakes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FEW)
def test_a_wrong_expected_value_is_seen(pack: Path, name: str) -> None:
    """What agrees with an answer contradicts one that is moved by little more than twice the radius."""
    case = next(c for c in index(pack)["cases"] if c["operator"] == name and c["outputs"][0]["shape"])
    place, out = pack / case["folder"], case["outputs"][0]
    expected, radius = np.load(place / out["expected"]), np.load(place / out["radius"])
    got = expected.copy()
    assert runner.judge(got, expected, radius, False)[0] == ""
    moved = expected.astype(np.float64)
    moved.flat[0] += 2.1 * radius.flat[0] + (1 if expected.dtype.kind != "f" else 4 * np.spacing(abs(expected.flat[0])))
    assert runner.judge(got, moved.astype(expected.dtype), radius, False)[0]


def test_what_the_runner_sees() -> None:
    y, r = np.float32([1, np.nan, np.inf, -0.0]), np.array([0.5, 0, 0, 0])
    assert runner.judge(y, y, r, True) == ("", 0)
    for i, wrong in enumerate((1.6, 2.0, -np.inf, 0.0)):
        got = y.copy()
        got[i] = wrong
        said, _ = runner.judge(got, y, r, True)
        assert said.startswith(f"[{i}] is "), said
        open_ = r.copy()
        open_[i] = np.inf
        assert runner.judge(got, y, open_, True)[0] == ""
    assert runner.judge(np.float32([1, np.nan, np.inf, 0.0]), y, r, False) == ("", 0)
    assert "must be float32(4,)" in runner.judge(y[:3], y, r, False)[0]
    assert "must be float32(4,)" in runner.judge(y.astype(float), y, r, False)[0]


def test_answers_leave_open_what_rounding_decides() -> None:
    large = np.float32([[np.finfo(np.float32).max / 2] * 4])
    case = VectorCase("MatMul", {"a": large, "b": np.float32([[1], [1], [1], [-1]])})
    assert math.isinf(answers(case)["y"].radius[0, 0])
