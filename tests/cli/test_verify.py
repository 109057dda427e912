"""The solver's command line of VNN-LIB: answers, assignments, what it says it supports."""

from __future__ import annotations

import json
import runpy
import signal
import time
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("torch")
pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")
pytest.importorskip("vnnlib")

from specgrad.bounds.search.network.pgd_attack import Run  # noqa: E402

ROOT = Path(__file__).parents[2]
CHECKER = runpy.run_path(str(ROOT / "benchmarks" / "vnncomp" / "check_counterexample.py"))
check, NoCounterexampleError = CHECKER["check"], CHECKER["NoCounterexampleError"]
TWO = """(vnnlib-version <2.0>)
(declare-network net (declare-input A float32 [1, 2]) (declare-output B float32 [1, 2]))
(assert (>= A[0, 0] 0.0)) (assert (<= A[0, 0] 1.0)) (assert (>= A[0, 1] 0.25)) (assert (<= A[0, 1] 1.0))
(assert (>= B[0, 1] %s))"""


@pytest.fixture
def queries(folder: Path) -> Path:
    """relu(x0 + x1), relu(x0 - x1) on [0, 1] x [0.25, 1]: the second output reaches 0.75."""
    text = (folder / "p.vnnlib").read_text()
    (folder / "broken.vnnlib").write_text(text.replace("(>= Y_1 3)", "(>= Y_1 0.5)"))
    for name, limit in (("two", "3.0"), ("two-broken", "0.5")):
        (folder / f"{name}.vnnlib").write_text(TWO % limit)
    return folder


@pytest.mark.parametrize(
    ("query", "answer", "code"),
    [("p", "unsat", 0), ("two", "unsat", 0), ("broken", "sat", 1), ("two-broken", "sat", 1)],
)
@pytest.mark.parametrize("named", ["net=net.onnx", "net.onnx"])
def test_the_first_line_is_the_answer(query: str, answer: str, code: int, named: str, queries, run) -> None:
    got, out, err = run(f"verify {query}.vnnlib --network {named} --timeout 20")
    assert (got, out.splitlines()[0], err) == (code, answer, "")
    assert (out == "unsat\n") == (answer == "unsat")


@pytest.mark.parametrize("query", ["broken", "two-broken"])
def test_a_counterexample_is_read_back_and_run_by_somebody_else(query: str, queries, run) -> None:
    """Printed, written by verify and written by certify: the same values, in the words of the query's version."""
    out = run(f"verify {query}.vnnlib --network net=net.onnx --counterexample v.txt")[1]
    assert run(f"certify net.onnx {query}.vnnlib --counterexample c.txt --vnncomp r.txt")[0] == 1
    written = Path("v.txt").read_text()
    assert (out, Path("c.txt").read_text(), Path("r.txt").read_text()) == (
        f"sat\n{written}",
        written,
        f"sat\n{written}",
    )
    assert check(Path(f"{query}.vnnlib"), out, {"": Path("net.onnx")}) <= 1e-6
    values = [Fraction(word) for word in written.replace(")", "").split() if word[:1] in "0123456789-"]
    x0, x1, y0, y1 = values[-4:]
    assert (y0, y1) == (x0 + x1, x0 - x1)  # exactly representable here: the attack goes to corners
    assert y1 >= Fraction(1, 2)


def test_the_form_of_2_0_is_that_of_the_standard(queries, run) -> None:
    lines = run("verify two-broken.vnnlib --network net=net.onnx")[1].splitlines()
    assert lines[:2] == ["sat", "A float32 [1,2]"]
    assert lines[4] == "B float32 [1,2]"
    assert len(lines) == 7


@pytest.mark.parametrize("query", ["broken", "two-broken"])
def test_serialised_tensors_are_the_printed_ones(query: str, queries, run) -> None:
    code, out, _ = run(f"verify {query}.vnnlib --network net=net.onnx --serialise-assignments out")
    assert (code, out) == (1, "sat\n")
    x, y = sorted(Path("out").iterdir())
    assert (x.name, y.name) == (("X.pb", "Y.pb") if query == "broken" else ("A.pb", "B.pb"))
    cells = [onnx.numpy_helper.to_array(onnx.TensorProto.FromString(p.read_bytes())) for p in (x, y)]
    assert [c.dtype for c in cells] == [np.float32] * 2
    assert np.maximum(np.float32([[1, 1], [1, -1]]) @ cells[0].ravel(), 0).tolist() == cells[1].ravel().tolist()
    assert run(f"verify {query}.vnnlib --network net=net.onnx --serialise-assignments out")[0] == 1  # its own
    x.write_text("mine")
    assert run(f"verify {query}.vnnlib --network net=net.onnx --serialise-assignments out")[0] == 3
    assert x.read_text() == "mine"


def test_the_checker_refuses_what_is_none(queries, run) -> None:
    """It would be no check that accepts these: an input outside the box, outputs that break nothing, ..."""
    text = run("verify broken.vnnlib --network net=net.onnx")[1]
    texts = {
        "outside": text.replace("(X_1 0.25)", "(X_1 0.125)"),
        "satisfied": text.replace("(X_0 1.0)", "(X_0 0.5)"),
        "other": text.replace("X_1", "X_2"),
        "cut": "\n".join(text.splitlines()[:-1]),
        "decimal": text.replace("(X_0 1.0)", "(X_0 1.0000000001)"),  # float32 makes 1 of it
        "quotient": text.replace("(X_0 1.0)", "(X_0 1/1)"),
    }
    for changed in texts.values():
        assert changed != text
        with pytest.raises(NoCounterexampleError):
            check(Path("broken.vnnlib"), changed, {"": Path("net.onnx")})


@pytest.mark.parametrize("version", ["p", "two"])
def test_a_point_without_float32_numbers_is_written_and_the_nearest_are_run(version: str, queries, run) -> None:
    """On 0.1..0.1 x 0.7..0.7 the first output is 0.8, whatever float32 makes of it."""
    text = Path(f"{version}.vnnlib").read_text()
    cells = ("X_0", "X_1", "Y_0", "Y_1") if version == "p" else ("A[0, 0]", "A[0, 1]", "B[0, 0]", "B[0, 1]")
    text = text[: text.index("(assert")] + f"(assert (>= {cells[2]} 0.79))"
    for cell, at in zip(cells, ("0.1", "0.7"), strict=False):
        text += f"(assert (>= {cell} {at})) (assert (<= {cell} {at}))"
    Path("point.vnnlib").write_text(text)
    code, out, err = run("verify point.vnnlib --network net=net.onnx")
    note = "2 of 2 input cells of the counterexample are no float32 numbers: the network was run on the nearest ones"
    assert (code, err) == (1, f"specgrad: {note}\n")
    assert ("(X_0 0.1)" if version == "p" else "[1,2]\n0.1\n0.7\n") in out
    assert check(Path("point.vnnlib"), out, {"": Path("net.onnx")}) < 1e-6
    data = json.loads(run("verify point.vnnlib --network net=net.onnx --json")[1])
    x = data["assignment"][0]
    assert (x["point"], x["values"]) == (["0.1", "0.7"], np.float32([0.1, 0.7]).tolist())
    nearest = out.replace("0.1", repr(x["values"][0]))
    with pytest.raises(NoCounterexampleError, match="assertion"):  # what was run is no point of the query
        check(Path("point.vnnlib"), nearest, {"": Path("net.onnx")})


def test_what_onnx_runtime_refutes_is_not_sat(queries, run, monkeypatch) -> None:
    """The competition counts the outputs of ONNX Runtime alone: near a tie its sums may fall the other way."""
    denied = lambda networks, interface, point, case: [Run("onnxruntime", point.y, False)]
    monkeypatch.setattr("specgrad.bounds.search.network.witnesses.ask", denied)
    code, out, err = run("verify broken.vnnlib --network net.onnx")
    assert (code, out) == (2, "unknown\n")
    assert "ONNX Runtime does not confirm" in err
    code, out, _ = run("certify net.onnx broken.vnnlib --vnncomp r.txt")
    assert code == 1  # what it computed itself
    assert "  onnxruntime does not break it: " in out
    assert "note: at the counterexample rounding decides: onnxruntime does not break the property there" in out
    assert Path("r.txt").read_text() == "unknown\n"


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs an alarm")
def test_a_search_that_does_not_look_at_the_clock_is_ended(queries, run, monkeypatch) -> None:
    def sleep(*args: Any, **named: Any) -> None:
        try:
            time.sleep(60)
        except Exception:
            pytest.fail("the alarm was taken for an error")

    command, rings = import_module("specgrad.properties.command"), []
    alarm = command.alarm
    monkeypatch.setattr(command, "alarm", lambda seconds: rings.append(seconds) or alarm(0.5))
    monkeypatch.setattr("specgrad.bounds.search.query.certify_query", sleep)
    start = time.monotonic()
    code, out, err = run("verify p.vnnlib --network net.onnx --timeout 0")
    assert (code, out, err) == (2, "timed-out\n", "specgrad: the time ended before the search did\n")
    assert rings == [5]  # seconds of grace, of which we wait a tenth
    assert time.monotonic() - start < 50
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


def test_an_equals_sign_may_stand_in_a_path(queries, run) -> None:
    Path("n=2.onnx").write_bytes(Path("net.onnx").read_bytes())
    for query in ("p", "two"):
        for named in ("n=2.onnx", "net=n=2.onnx"):
            assert run(f"verify {query}.vnnlib --network {named}")[:2] == (0, "unsat\n")


@pytest.mark.parametrize("options", ["--network other=net.onnx", "", "--network net=net.onnx --network g=net.onnx"])
def test_files_must_be_those_of_the_declared_networks(options: str, queries, run) -> None:
    code, out, err = run(f"verify two.vnnlib {options}")
    assert (code, out, err.startswith("specgrad: verify: ")) == (3, "", True)


def test_other_files_are_not_overwritten(queries, run) -> None:
    Path("mine.txt").write_text("mine")
    for command in ("verify broken.vnnlib --network net.onnx", "certify net.onnx broken.vnnlib"):
        assert run(f"{command} --counterexample mine.txt")[0] == 3
        assert Path("mine.txt").read_text() == "mine"
        assert run(f"{command} --counterexample mine.txt --force")[0] == 1
        assert run(f"{command} --counterexample mine.txt")[0] == 1
        Path("mine.txt").write_text("mine")


def test_capabilities_are_one_per_line(run) -> None:
    assert run("supports")[0] == 3
    answers = json.loads(run("supports --json")[1])["supports"]
    for name, lines in answers.items():
        assert run(f"supports --{name}") == (0, "\n".join(lines) + "\n", "")
    assert {"Conv", "Relu", "Gemm", "MaxPool"} <= set(answers["onnx-operators"])
    assert answers["vnnlib-versions"] == ["1.0", "2.0"]
    assert answers["onnx-element-types"] == ["float32"]


HEADS = {
    "one": "(declare-network f (declare-input X %(kind)s [1, 2]) (declare-output Y %(kind)s [1, 2]))",
    "several": "(declare-network f (declare-input P float32 [1, 2]) (declare-input Q float32 [1, 2])"
    " (declare-output R float32 [1, 2]) (declare-output S float32 [1, 2]))",
    "equal": "(declare-network f (declare-input X float32 [1, 2]) (declare-output Y float32 [1, 2]))"
    " (declare-network g (equal-to f) (declare-input A float32 [1, 2]) (declare-output B float32 [1, 2]))",
}
HEADS |= {"isomorphic": HEADS["equal"].replace("equal-to", "isomorphic-to")}
HEADS |= {"any": HEADS["equal"].replace("(equal-to f) ", "")}


def within(*names: str) -> str:
    return "".join(f"(assert (>= {n}[0,{i}] 0.0)) (assert (<= {n}[0,{i}] 1.0))" for n in names for i in range(2))


@pytest.mark.parametrize(
    ("theory", "head", "asked", "files"),
    [
        ("SIO SNET SNC BND", "one", within("X") + "(assert (>= Y[0,0] 1.9))", "net"),
        ("OUTC", "one", within("X") + "(assert (>= Y[0,0] Y[0,1])) (assert (>= Y[0,1] 0.5))", "net"),
        ("LIN", "one", within("X") + "(assert (>= (+ Y[0,0] (* 2.0 Y[0,1])) 2.5))", "net"),
        ("MNC", "one", within("X") + "(assert (>= Y[0,0] (+ X[0,0] 0.5))) (assert (<= X[0,1] X[0,0]))", "net"),
        ("MIO", "several", within("P", "Q") + "(assert (>= (+ R[0,0] S[0,1]) 1.5)) (assert (<= Q[0,0] 0.25))", "two"),
        ("MENET", "equal", within("X", "A") + "(assert (>= Y[0,0] (+ B[0,0] 1.0)))", "net"),
        ("MINET", "isomorphic", within("X", "A") + "(assert (>= Y[0,0] (+ B[0,0] 1.0)))", "net net"),
        ("MNET", "any", within("X", "A") + "(assert (>= Y[0,0] (+ B[0,0] 1.0)))", "net net"),
    ],
)
def test_each_theory_that_supports_names_is_answered(theory, head, asked, files, queries, run) -> None:
    """relu(x0 + x1), relu(x0 - x1), or of several inputs p + q, p - q: sat, which the checker confirms, and unsat."""
    import specgrad as sg
    from specgrad.interop import to_onnx

    answers = json.loads(run("supports --json")[1])["supports"]
    assert set(theory.split()) <= {line for lines in answers.values() for line in lines}
    onnx.save(to_onnx(sg.trace(lambda p, q: (p + q, p - q), (1, 2), (1, 2))), "two.onnx")
    given = {name: f"{file}.onnx" for name, file in zip("fg", files.split(), strict=False)}
    networks = " ".join(f"--network {name}={file}" for name, file in given.items())
    text = "(vnnlib-version <2.0>) " + HEADS[head] % {"kind": "float32"}
    Path("q.vnnlib").write_text(text + asked)
    code, out, err = run(f"verify q.vnnlib {networks} --timeout 20")
    assert (code, err) == (1, "")
    assert check(Path("q.vnnlib"), out, {name: Path(file) for name, file in given.items()}) < 1e-6
    Path("q.vnnlib").write_text(
        text + asked + ("(assert (>= Y[0,0] 9.0))" if head != "several" else "(assert (>= R[0,0] 9.0))")
    )
    assert run(f"verify q.vnnlib {networks} --timeout 20") == (0, "unsat\n", "")


def test_cells_that_are_real_are_rounded_and_it_says_so(queries, run) -> None:
    text = "(vnnlib-version <2.0>) " + HEADS["one"] % {"kind": "real"} + within("X") + "(assert (>= Y[0,0] 3.0))"
    Path("real.vnnlib").write_text(text)
    code, out, err = run("verify real.vnnlib --network f=net.onnx")
    said = "the query declares real cells; unsat is about the float32 numbers that they are rounded to"
    assert (code, out, err) == (0, "unsat\n", f"specgrad: {said}\n")
    assert json.loads(run("verify real.vnnlib --network f=net.onnx --json")[1])["notes"] == [said]


def test_certify_of_several_networks_names_the_command_that_takes_them(queries, run) -> None:
    text = "(vnnlib-version <2.0>) " + HEADS["isomorphic"] + within("X", "A") + "(assert (>= Y[0,0] B[0,1]))"
    Path("pair.vnnlib").write_text(text)
    code, _, err = run("certify net.onnx pair.vnnlib")
    assert (code, "specgrad verify --network NAME=FILE" in err) == (3, True)


PAIR = """(vnnlib-version <2.0>)
(declare-network f (declare-input X float32 [1, 2]) (declare-output Y float32 [1, 2]))
(declare-network g (%s f) (declare-input A float32 [1, 2]) (declare-output B float32 [1, 2])) ; two runs of one network
(assert (and (<= 0.0 X[0, 0]) (<= X[0, 0] 1.0) (== X[0, 0] A[0, 0]) (<= X[0, 1] A[0, 1]) (>= X[0, 1] 0.25)))
(assert (> Y[0, 1] (+ B[0,1] 0.25)))"""


def assigned(x: tuple[float, float], a: tuple[float, float]) -> str:
    outputs = [(max(p + q, 0.0), max(p - q, 0.0)) for p, q in (x, a)]
    values = zip("XYAB", (x, outputs[0], a, outputs[1]), strict=True)
    return "sat\n" + "\n".join(f"{name} float32 [1,2]\n{v[0]}\n{v[1]}" for name, v in values)


@pytest.mark.parametrize("relation", ["equal-to", "isomorphic-to"])
def test_the_checker_runs_several_networks(relation: str, folder) -> None:
    """The second output is relu(x0 - x1): it falls where x1 grows, by more than 0.25 or not."""
    query = Path("pair.vnnlib")
    query.write_text(PAIR % relation)
    files = {"f": Path("net.onnx")} | ({} if relation == "equal-to" else {"g": Path("net.onnx")})
    assert check(query, assigned((1.0, 0.25), (1.0, 0.75)), files) == 0
    for wrong in (((1.0, 0.25), (1.0, 0.5)), ((1.0, 0.25), (0.5, 0.75)), ((1.0, 0.125), (1.0, 0.75))):
        with pytest.raises(NoCounterexampleError, match="is false"):
            check(query, assigned(*wrong), files)
    with pytest.raises(NoCounterexampleError, match="line 5 of the results must be 'Y float32"):
        check(query, assigned((1.0, 0.25), (1.0, 0.75)).replace("Y", "B"), files)
