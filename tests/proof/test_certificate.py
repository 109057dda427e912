"""Certificates: exact replays bound what float32 computes, valid ones are accepted, any changed bit is refused."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import time
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import drawn_windows
import leaves
import specgrad as sg
from competition import VERIVITAL, needs_shared
from pace import slower, stretched
from specgrad.graph.ir.node import call
from specgrad.op import REGISTRY, run_spec
from specgrad.properties.property import Property, robustness
from specgrad.properties.vnnlib import read

pytest.importorskip("flint")
pytest.importorskip("safetensors")
torch = pytest.importorskip("torch")

from specgrad.bounds.search.certificates.find_slopes import certificate, prove  # noqa: E402
from specgrad.proof.base.executions import deployment  # noqa: E402
from specgrad.proof.base.rationals import ReplayError, rational, rationals  # noqa: E402
from specgrad.proof.exact import replay as replaying  # noqa: E402
from specgrad.proof.exact.replay import ExecutionModel, Replay, Slopes  # noqa: E402
from specgrad.proof.files.certificate import (  # noqa: E402
    SCALE,
    CaseProof,
    Checked,
    Deadline,
    Proof,
    check,
    check_file,
    encode,
    sealed,
    write,
)


def network(seed: int) -> sg.Graph:
    """Convolution, relu, a pool, a residual sum, a linear layer; sizes and kind of pool by the seed."""
    rng = np.random.default_rng(seed)
    draw = lambda *shape: rng.normal(size=shape).astype(np.float32) / 2
    w, b, v = draw(2, 1, 2, 2), draw(2), draw(2, 2, 1, 1)
    pools = [
        lambda y: sg.max_pool(y, (2, 2), stride=1, padding=1),
        lambda y: sg.max_pool(y, (2, 1), stride=1, dilation=(2, 1)),
        lambda y: sg.avg_pool(y, (3, 2), stride=2, padding=1, count_include_pad=False),
        lambda y: sg.avg_pool(y, (2, 2)),
    ]

    def features(x: Any) -> Any:
        y = sg.relu(sg.conv(w, b, x, padding=1))
        y = sg.add(y, sg.relu(sg.conv(v, None, y)))
        return sg.flatten(pools[seed % 4](y), 1)

    cells = sg.trace(features, (1, 1, 3, 4)).nodes[-1].shape[1]
    last = draw(3, cells)
    return sg.trace(lambda x: sg.linear(last, b[:1].repeat(3), features(x)), (1, 1, 3, 4))


def random_slopes(graph: sg.Graph, rng: np.random.Generator) -> dict[int, Slopes]:
    """Any slopes that a certificate may have."""
    found = {}
    for i, node in enumerate(graph.nodes):
        if node.op.name == "relu":
            found[i] = Slopes(*rng.integers(0, SCALE + 1, (2, *node.shape)), SCALE)
        elif node.op.name == "max_pool":
            taps = list(node.params["window"].taps())
            inside = np.zeros((len(taps), *node.shape), dtype=bool)
            for t, tap in enumerate(taps):
                tap.write_outputs(inside[t], True)
            first = np.argmax(inside * rng.uniform(0.5, 1, inside.shape), axis=0)
            lower = (np.arange(len(taps)).reshape(-1, *(1,) * first.ndim) == first) * SCALE
            found[i] = Slopes(lower, rng.integers(0, SCALE, inside.shape) * inside, SCALE)
    return found


def below(graph: sg.Graph, seed: int, width: float = 0.3, model: ExecutionModel | None = None) -> tuple[int, float]:
    """How many sampled float32 executions, corners and inner points, lie below a replayed bound; the least distance."""
    rng = np.random.default_rng(seed)
    shape = graph.nodes[graph.input_positions[0]].shape
    middle = rng.normal(size=shape)
    low, high = (middle - width).astype(np.float32), (middle + width).astype(np.float32)
    outputs = int(np.prod(graph.nodes[graph.output_positions[0]].shape))
    row = rng.integers(-3, 4, outputs)
    found = Replay(graph, low, high, random_slopes(graph, rng), model=model).lower(rationals(row))
    bound = Fraction(int(found.p), int(found.q))
    share = rng.uniform(size=(200, *shape))
    share[::2] = np.rint(share[::2])
    x = np.clip((low + share * (high - low)).astype(np.float32), low, high)
    with torch.no_grad():
        y = torch.func.vmap(sg.compile(graph, "torch"))(torch.from_numpy(x)).numpy().reshape(200, outputs)
    values = [sum(int(r) * Fraction(float(v)) for r, v in zip(row, each, strict=True)) for each in y]
    return sum(v < bound for v in values), float(min(values) - bound)


def test_replays_bound_what_float32_computes() -> None:
    results = [below(network(seed), seed) for seed in range(16)]
    assert all(count == 0 for count, _ in results)
    assert min(distance for _, distance in results) < 10  # or the bounds would say nothing


def test_replays_bound_what_float32_computes_through_windows() -> None:
    """Of every kind: slopes are any, as in a forged certificate."""
    graphs = [leaves.windowed(seed) for seed in range(16)]
    assert drawn_windows.kinds(graphs, ("max_pool",)) >= drawn_windows.KINDS | drawn_windows.RANKS
    assert all(below(graph, seed, width=1.0)[0] == 0 for seed, graph in enumerate(graphs))


def test_points_are_bounded_to_rounding() -> None:
    """On a box of one point the bound is the exact value less rounding: nothing is given away elsewhere.

    Not with a max_pool of seeds 0 and 1: their lower slopes are on any tap, not on the largest.
    """
    for seed in (2, 3, 6, 7):
        for model, most in ((ExecutionModel(fused=False), 1e-4), (ExecutionModel(), 4e-4)):
            count, distance = below(network(seed), seed, width=0.0, model=model)
            assert count == 0
            assert distance < most


def test_ranges_hold_what_every_layer_computes() -> None:
    for seed in range(8):
        graph, rng = network(seed), np.random.default_rng(seed)
        low = rng.normal(size=(1, 1, 3, 4)).astype(np.float32)
        high = (low + rng.uniform(0, 0.5, low.shape)).astype(np.float32)
        ranges = Replay(graph, low, high, random_slopes(graph, rng)).ranges
        for _ in range(10):
            x = np.where(rng.integers(0, 2, low.shape), high, low)
            values: dict[str, Any] = {}
            call(graph, (x,), lambda node, y, seen=values: seen.update({node.name: rationals(y)}))
            for node, found in zip(graph.nodes, ranges, strict=True):
                if node.name in values:
                    y = values[node.name]
                    assert ((found.low <= y) & (y <= found.high)).all(), (seed, node.name)


@pytest.mark.parametrize(("name", "pooled"), [("relu_lines", (2, 3, 6, 7)), ("max_lines", (0, 1, 4, 5))])
def test_the_hunt_catches_a_wrong_line(monkeypatch: pytest.MonkeyPatch, name: str, pooled: tuple[int, ...]) -> None:
    original = getattr(replaying, name)

    def wrong(node: Any, x: Any, lower: Any, upper: Any) -> Any:
        slopes, (above, intercept) = original(node, x, lower, upper)
        return slopes, (above, intercept * rational(1, 8))

    monkeypatch.setattr(replaying, name, wrong)
    assert any(below(network(seed), 100 * k + seed)[0] for k in range(8) for seed in pooled)


def test_rounding_is_counted() -> None:
    """(x + 2**24) - 2**24 in one layer is 0 in float32 for x in 3/4 .. 7/8, so x > 1/2 is not proven of it."""
    graph = sg.trace(lambda x: sg.sub(sg.add(x, 2.0**24), 2.0**24), (1,))
    for model, least in ((ExecutionModel(fused=False), 4), (ExecutionModel(), 9)):
        bound = Replay(graph, np.float32([0.75]), np.float32([0.875]), {}, model=model).lower(rationals([1]))
        assert bound <= 0
        assert Replay(graph, np.float32([least]), np.float32([10]), {}, model=model).lower(rationals([1])) > 0


# --- refusals of the replay -------------------------------------------------------------------------------------------


def test_slopes_outside_their_limits_are_refused() -> None:
    graph = network(0)
    slopes = random_slopes(graph, np.random.default_rng(0))
    relu, pool = (next(i for i, n in enumerate(graph.nodes) if n.op.name == kind) for kind in ("relu", "max_pool"))
    box = np.zeros((1, 1, 3, 4), np.float32), np.ones((1, 1, 3, 4), np.float32)

    def refused(at: int, lower: Any, upper: Any, words: str) -> None:
        with pytest.raises(ReplayError, match=words):
            Replay(graph, *box, {**slopes, at: Slopes(lower, upper, SCALE)}).lower(rationals([1, 0, 0]))

    good = slopes[relu]
    refused(relu, good.lower * 0 + SCALE + 1, good.upper, "must not be above 1")
    refused(relu, good.lower, good.upper - SCALE - 1, "not negative")
    refused(relu, good.lower[..., :-1], good.upper, "must be whole, not negative, of")
    refused(relu, good.lower.astype(float), good.upper, "must be whole")
    good = slopes[pool]
    refused(pool, good.lower * 2, good.upper, "must add up to 1 in every window")
    with pytest.raises(ReplayError, match=r"slopes of node .* are missing"):
        Replay(graph, *box, {}).lower(rationals([1, 0, 0]))


def test_operators_without_a_rule_are_refused() -> None:
    graph = sg.trace(lambda x: sg.gelu(x), (2,))
    with pytest.raises(sg.UnsupportedError, match="a certificate has no rule for node gelu"):
        Replay(graph, np.zeros(2, np.float32), np.ones(2, np.float32), {})


# --- certificates -----------------------------------------------------------------------------------------------------


def small() -> tuple[sg.Graph, Property]:
    """A network and a property that linear bounds prove."""
    graph = network(0)
    x = np.random.default_rng(5).normal(size=(1, 1, 3, 4)).astype(np.float32)
    y = np.ravel(graph(x.astype(float)))
    return graph, robustness(x, int(np.argmax(y)), Fraction(1, 50), 3)


def test_a_certificate_is_valid(tmp_path: Path) -> None:
    graph, statement = small()
    text, arrays = certificate(graph, statement)
    found = check(text, arrays, graph, statement)
    assert isinstance(found, Checked)
    assert min(min(m) for m in found.margins) > 0
    write(tmp_path / "c.json", graph, prove(graph, statement))
    assert check_file(tmp_path / "c.json", graph).margins == found.margins


def test_relus_that_never_open_have_slopes_too() -> None:
    """The float bounds need no lines for them; the checker asks for the slopes of every relu."""
    w = np.float32([[1, 1], [1, -1]])
    off = np.float32([-9, -9])

    def net(x: Any) -> Any:
        return sg.linear(w, None, sg.add(x, sg.relu(sg.linear(w, off, x))))

    graph = sg.trace(net, (1, 2))
    statement = robustness(np.float32([[1, 0.5]]), 0, Fraction(1, 10), 2)
    assert min(check(*certificate(graph, statement), graph, statement).margins[0]) > 0


def test_what_does_not_hold_has_no_certificate() -> None:
    """The box is as wide as to hold a counterexample: whatever the slopes, the checker refuses."""
    graph, statement = small()
    wide = robustness([float(v) for v in statement.cases[0].low], 0, 5, 3)
    rng = np.random.default_rng(0)
    (case,) = prove(graph, wide)
    for _ in range(5):
        alternatives = tuple(
            (r, limits, Proof(p.weights, random_slopes(graph, rng))) for r, limits, p in case.alternatives
        )
        with pytest.raises(ReplayError, match="is not excluded: the proven margin is -"):
            check(*encode(graph, [replace(case, alternatives=alternatives)]), graph, wide)


def forged(text: bytes, arrays: bytes, change: Any) -> bytes:
    """A certificate with a change, and digests that fit it again."""
    data = json.loads(text)
    change(data)
    return sealed(data, arrays)


def test_forged_certificates_are_refused() -> None:
    graph, statement = small()
    text, arrays = certificate(graph, statement)
    first = lambda data: data["cases"][0]["alternatives"][0]
    for change, words in (
        (lambda d: first(d).update(limits=["1000"]), "is not excluded"),
        (lambda d: first(d).update(limits=["1e999999999"]), "a limit must be a fraction of whole numbers"),
        (lambda d: first(d).update(limits=["9" * 4001]), "a limit must be a fraction of whole numbers"),
        (lambda d: first(d).update(limits=["2/4"]), "in lowest terms"),
        (lambda d: first(d).update(limits=["\u0661"]), "a limit must be a fraction of whole numbers"),
        (lambda d: first(d).update(weights=[-1]), "weights must be whole numbers from 0 to"),
        (lambda d: first(d).update(weights=[1, -7], rows=[[1, 0, 0]] * 2, limits=["0", "0"]), "weights must be whole"),
        (lambda d: first(d).update(weights=[1 << 54]), "weights must be whole numbers from 0 to"),
        (lambda d: first(d).update(weights=[10**30]), "a whole number has over 18 digits"),
        (lambda d: first(d).update(weights=[True]), "weights must be whole numbers from 0 to"),
        (lambda d: first(d).update(weights=[0]), "are all 0, so nothing excludes it"),
        (lambda d: first(d).update(weights=[0], limits=["-1"]), "are all 0, so nothing excludes it"),
        (lambda d: first(d).update(weights=[], limits=[], rows=[]), "must be a list, and not empty"),
        (lambda d: first(d).update(weights=[1, 1]), "a limit and a weight per row"),
        (lambda d: first(d).update(rows=[[1]]), "a row needs 3 numbers, one per output; got 1"),
        (lambda d: first(d).update(tighten=[5, 5]), "positions of nodes, in order, each once"),
        (lambda d: first(d).update(tighten=[0]), "only what is computed can be tightened"),
        (lambda d: d["cases"][0].update(alternatives=[]), "must be a list, and not empty"),
        (lambda d: d.update(cases=[]), "must be a list, and not empty"),
        (lambda d: d["arithmetic"].update(dtype="float16"), "dtype must be 'float32' in a certificate; got 'float16'"),
        (lambda d: d["arithmetic"].update(flush=1), "flush must be True in a certificate"),
        (lambda d: d["arithmetic"].update(execution="tiled"), "execution must be 'fused' or 'node'"),
        (lambda d: d["arithmetic"].pop("depth"), "the arithmetic has the entries"),
        (lambda d: first(d).update(rows=[[0.5, 0, 0]]), "no decimal numbers"),
        (lambda d: first(d)["slopes"].popitem(), "are missing"),
        (lambda d: first(d).pop("tighten"), "an alternative has the entries"),
        (lambda d: d["cases"][0].update(low="nothing"), "array 'nothing' is missing"),
        (lambda d: d.update(version=5), "format and version must be"),
        (lambda d: d.update(version=True), "version 1 is no longer accepted"),
        (lambda d: d.update(version=3), "version 3 is no longer accepted: its trees do not say .*; certify again"),
        (lambda d: d.update(version=1), "counted rounding node by node, and runtimes merge nodes"),
        (lambda d: d.update(note=""), "a certificate has the entries"),
    ):
        with pytest.raises(ReplayError, match=words):
            check(forged(text, arrays, change), arrays, graph)
    less = forged(text, arrays, lambda d: d["cases"][0]["alternatives"].pop())
    assert len(check(less, arrays, graph).cases) == 1  # true, but not what was asked:
    with pytest.raises(ReplayError, match="an alternative of the property is not among the certificate's"):
        check(less, arrays, graph, statement)


def test_it_is_about_this_property_and_this_network() -> None:
    graph, statement = small()
    text, arrays = certificate(graph, statement)
    case = statement.cases[0]
    wider = replace(statement, cases=(replace(case, high=(case.high[0] + Fraction(1, 1000), *case.high[1:])),))
    with pytest.raises(ReplayError, match="the certificate's box does not hold the property's"):
        check(text, arrays, graph, wider)
    with pytest.raises(ReplayError, match="the network is not the one"):
        check(text, arrays, network(4), statement)


def twins() -> sg.Graph:
    """y = -(relu(x + 10) + relu(x - 10)), with the name of one relu given to both."""
    graph = sg.trace(lambda x: sg.sub(0.0, sg.add(sg.relu(sg.add(x, 10.0)), sg.relu(sg.add(x, -10.0)))), (1,))
    nodes = (replace(n, name="relu", group="relu") if n.op.name == "relu" else n for n in graph.nodes)
    return replace(graph, nodes=tuple(nodes))


def test_two_nodes_of_one_name_have_lines_of_their_own() -> None:
    """On -1..1 y lies in -11..-9. The lines of the second relu, which is 0 there, must not stand for the first."""
    graph = twins()
    first, second = (i for i, n in enumerate(graph.nodes) if n.name == "relu")
    flat = Slopes(np.zeros(1, np.int16), np.zeros(1, np.int16), SCALE)
    rows, box = np.array([[1]], dtype=object), (np.float32([-1]), np.float32([1]))
    for slopes in ({first: flat, second: flat}, {second: flat}):
        for limit, valid in ((-5, False), (-12, len(slopes) == 2)):
            proof = CaseProof(*box, ((rows, (Fraction(limit),), Proof((1,), slopes)),))
            if valid:
                assert len(check(*encode(graph, [proof]), graph).cases) == 1
            else:
                with pytest.raises(ReplayError):
                    check(*encode(graph, [proof]), graph)


def test_positions_have_one_spelling() -> None:
    graph, statement = small()
    text, arrays = certificate(graph, statement)
    key = next(iter(json.loads(text)["cases"][0]["alternatives"][0]["slopes"]))
    for other in (
        f"0{key}",
        f"+{key}",
        f" {key}",
        f"{key}_0",
        "-1",
        "relu",
        str(len(graph.nodes)),
        "9" * 5000,
        "\u0661",
    ):

        def renamed(data: Any, other: str = other) -> None:
            slopes = data["cases"][0]["alternatives"][0]["slopes"]
            slopes[other] = slopes.pop(key)

        with pytest.raises(ReplayError, match="a node goes by its position, 0 to"):
            check(forged(text, arrays, renamed), arrays, graph, statement)


def flipped(data: bytes, rng: Random) -> bytes:
    k = rng.randrange(8 * len(data))
    return data[: k // 8] + bytes([data[k // 8] ^ 1 << k % 8]) + data[k // 8 + 1 :]


def flips(graph: sg.Graph, statement: Property, count: int, seed: int) -> int:
    """How many single flipped bits are refused: of the certificate, its arrays (boxes, slopes), the weights."""
    text, arrays = certificate(graph, statement)
    graph = replace(graph, constants={i: np.asarray(a, np.float32) for i, a in graph.constants.items()})
    box = bytes(encode(graph, [CaseProof(c.low, c.high, ()) for c in prove(graph, statement)])[1])
    at = arrays.index(box[-4 * statement.inputs :])  # where the ends of the box stand
    rng, refused = Random(seed), 0
    for k in range(count):
        given = [text, arrays, graph]
        if k % 4 == 0:
            given[0] = flipped(text, rng)
        elif k % 4 == 1:
            given[1] = flipped(arrays, rng)
        elif k % 4 == 2:
            end = at + 4 * statement.inputs
            given[1] = arrays[:at] + flipped(arrays[at:end], rng) + arrays[end:]
        else:
            i = rng.choice(sorted(graph.constants))
            array = graph.constants[i]
            changed = np.frombuffer(flipped(array.tobytes(), rng), array.dtype).reshape(array.shape)
            given[2] = replace(graph, constants={**graph.constants, i: changed})
        try:
            check(*given, statement)
        except ReplayError:
            refused += 1
    return refused


def test_every_flipped_bit_is_refused() -> None:
    assert flips(*small(), 400, seed=0) == 400


@needs_shared
@pytest.mark.slow
def test_every_flipped_bit_of_a_competition_certificate_is_refused() -> None:
    from specgrad.interop import from_onnx

    statement = read(VERIVITAL / "specs/maxpool_specs/prop_0_0.004.vnnlib")
    assert flips(from_onnx(VERIVITAL / "Convnet_maxpool.onnx"), statement, 10_000, seed=1) == 10_000


@needs_shared
@pytest.mark.parametrize("name", ["maxpool_specs/prop_0_0.004", "avgpool_specs/prop_13_0.04"])
def test_competition_certificates(name: str) -> None:
    """The second one needs optimised slopes."""
    pytest.importorskip("onnx")
    from specgrad.interop import from_onnx

    graph = from_onnx(VERIVITAL / f"Convnet_{name.partition('_')[0]}.onnx")
    statement = read(VERIVITAL / f"specs/{name}.vnnlib")
    text, arrays = certificate(graph, statement)
    pace, start = slower(), time.process_time()
    found = check(text, arrays, graph, statement)
    assert time.process_time() - start < stretched(5, pace)
    assert len(found.margins[0]) == 9


# --- the command ------------------------------------------------------------------------------------------------------


def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("typer")
    from specgrad.cli.main import main

    graph, _ = small()
    sg.save(graph, tmp_path / "net.json")
    x = np.random.default_rng(5).normal(size=(1, 1, 3, 4)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    label = int(np.argmax(graph(x.astype(float))))
    monkeypatch.chdir(tmp_path)

    def run(*args: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["specgrad", *args])
        with pytest.raises(SystemExit) as done:
            main()
        return int(done.value.code or 0), capfd.readouterr()[0]

    around = ("certify", "net.json", "--input", "x.npy", "--label", str(label), "--eps", "1/50")
    code, out = run(*around, "--certificate", "c.json", "--json")
    assert code == 0
    assert json.loads(out)["certificate"] == {"file": "c.json"}
    property_ = ("--input", "x.npy", "--label", str(label), "--eps", "1/50")
    code, out = run("check-certificate", "c.json", "net.json", *property_, "--json")
    data = json.loads(out)
    assert (code, data["verdict"]) == (0, "valid")
    assert data["network"] == {"file": "net.json", "digest": json.loads((tmp_path / "c.json").read_text())["network"]}
    assert data["arithmetic"]["execution"] == "fused"
    assert data["deployment"] == deployment()
    others = [j for j in range(3) if j != label]
    said = [a["excluded"] for a in data["cases"][0]["alternatives"]]
    expected = {f"Y_{label} - Y_{j} <= 0" if label < j else f"-Y_{j} + Y_{label} <= 0" for j in others}
    assert {text.removesuffix(" never happens") for text in said} == expected
    code, out = run("check-certificate", "c.json", "net.json", *property_)
    assert code == 0
    for words in ("valid  least margin", "network: net.json, digest", "12 inputs; the widest: X_",
                  "never happens; margin", "algorithms: direct sums; Winograd"):  # fmt: skip
        assert words in out, out
    assert run("check-certificate", "c.json", "net.json")[0] == 3  # the property must be said
    wider = ("--input", "x.npy", "--label", str(label), "--eps", "1/49")
    code, out = run("check-certificate", "c.json", "net.json", *wider)
    assert (code, out.strip()) == (1, "refused  certificate: the certificate's box does not hold the property's")
    code, out = run("check-certificate", "c.json", "net.json", *property_, "--seconds", "0")
    assert code == 2
    assert "took over 0 s" in out
    (tmp_path / "c.json").write_bytes(flipped((tmp_path / "c.json").read_bytes(), Random(0)))
    code, out = run("check-certificate", "c.json", "net.json", *property_)
    assert code == 1
    assert out.startswith("refused")


def test_the_checker_runs_without_the_code_that_found_the_proof(tmp_path: Path) -> None:
    """No PyTorch, no float bounds: what the command has imported after checking says so."""
    graph, statement = small()
    sg.save(graph, tmp_path / "net.json")
    write(tmp_path / "c.json", graph, prove(graph, statement))
    case = statement.cases[0]
    middle = np.float32([(low + high) / 2 for low, high in zip(case.low, case.high, strict=True)])
    np.save(tmp_path / "x.npy", middle.reshape(1, 1, 3, 4))
    label = int(np.argmax(case.alternatives[0].rows[0]))
    text = """
import sys
from specgrad.cli.main import main
around = ["--input", "x.npy", "--label", "LABEL", "--eps", "1/51"]
sys.argv = ["specgrad", "check-certificate", "c.json", "net.json", *around]
try:
    main()
except SystemExit as done:
    print(done.code, sorted(m for m in sys.modules if m.startswith(("torch", "jax", "specgrad.bounds."))))
"""
    text = text.replace("LABEL", str(label))
    done = subprocess.run([sys.executable, "-c", text], cwd=tmp_path, capture_output=True, text=True, check=True)
    code, _, modules = done.stdout.splitlines()[-1].partition(" ")
    assert code == "0"
    assert not {"torch", "jax", *(f"specgrad.bounds.{n}" for n in ("walk", "backward", "relax", "layers"))} & set(
        ast.literal_eval(modules)
    )


# --- every operator that a replay passes ------------------------------------------------------------------------------

PASSED = sorted(name for name, op in REGISTRY.items() if op.linear and not (op.index_args or op.transcendental))


@pytest.mark.parametrize("name", PASSED)
def test_absolute_values_are_not_exceeded(name: str) -> None:
    """The size that rounding is counted with: abs(f(x)) <= f_abs(abs(x)), over exact numbers, for all signs."""
    op, rng = REGISTRY[name], Random(0)
    for _ in range(60):
        args, params = op.cases(rng)
        exact = [sg.exact(np.asarray(a)) for a in args]
        y = np.abs(run_spec(op, exact, params))
        assert np.all(y <= replaying.absolute(op, [np.abs(a) for a in exact], params))


# --- the checker alone ------------------------------------------------------------------------------------------------


def test_the_time_is_asked_for_at_every_node(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, statement = small()
    text, arrays = certificate(graph, statement)
    asked = []
    monkeypatch.setattr(Deadline, "__call__", lambda deadline: asked.append(deadline))
    check(text, arrays, graph, statement)
    assert len(asked) > 2 * len(graph.nodes)  # forward, and backward for at least one alternative
    monkeypatch.undo()
    with pytest.raises(ReplayError, match="the replay took over 0 s"):
        check(text, arrays, graph, statement, seconds=0)


def test_any_bytes_end_in_words() -> None:
    """Files that are no certificate at all."""
    graph, statement = small()
    text, arrays = certificate(graph, statement)
    rng = Random(0)
    for _ in range(300):
        given = [text, arrays]
        k, kind = rng.randrange(2), rng.randrange(3)
        cut = rng.randrange(len(given[k]))
        given[k] = (given[k][:cut], rng.randbytes(cut % 999), given[k][:cut] + rng.randbytes(9) + given[k][cut:])[kind]
        with pytest.raises(ReplayError):
            check(*given, graph, statement)
    for odd in (b"", b"[" * 10**6, b'{"a":' * 10**5, b"9" * 10**6, b"\xff\xfe", b"null\n", b"[]\n", b'"x"\n', b"NaN\n"):
        with pytest.raises(ReplayError):
            check(odd, arrays, graph, statement)
