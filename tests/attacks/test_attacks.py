"""Published attacks on verifiers, and some of our own: what an execution really computes is never proven impossible."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")
pytest.importorskip("flint")
pytest.importorskip("safetensors")

from attack import Attack, graph_of  # noqa: E402
from export import onnx_bytes, vnnlib  # noqa: E402
from pace import ENDS  # noqa: E402
from specgrad.bounds.search.certificates.find_slopes import certificate  # noqa: E402
from specgrad.proof.base.rationals import ReplayError  # noqa: E402
from specgrad.proof.files.certificate import check  # noqa: E402
from specgrad.properties.vnnlib import read_text  # noqa: E402
from suite import BUILDERS, attack_named, bounds_at_the_input, holds_over_the_reals, verdict  # noqa: E402
from trained import hidden  # noqa: E402
from trees import FLOAT, tf32  # noqa: E402


@pytest.fixture(params=BUILDERS, scope="module")
def attack(request: pytest.FixtureRequest) -> Attack:
    return attack_named(request.param)


def test_an_execution_breaks_the_claim(attack: Attack) -> None:
    """At an input of the box, by float32 operations one after the other; another order keeps it, if one can."""
    (case,) = attack.claim.cases
    assert attack.x.dtype == FLOAT
    assert all(low <= x <= high for low, x, high in zip(case.low, map(float, attack.x.flat), case.high, strict=True))
    assert attack.broken_by(attack.trigger(attack.network, attack.x))
    if attack.quiet is not None:
        assert not attack.broken_by(attack.quiet(attack.network, attack.x))


def test_the_executor_computes_the_network(attack: Attack) -> None:
    """One of the executions lies near what specgrad's graph is in float64; the other one has lost a term."""
    y = np.ravel(attack.graph(attack.x.astype(float)))
    assert min(float(abs(e(attack.network, attack.x) - y).max()) for e in attack.executions) < 1e-3


def test_over_the_reals_the_claim_looks_fine(attack: Attack) -> None:
    assert holds_over_the_reals(attack) == attack.real


def test_we_never_say_that_it_holds(attack: Attack) -> None:
    assert verdict(attack, seconds=0.2).verdict != "holds"


@pytest.mark.slow
def test_we_do_not_say_so_after_a_long_search_either(attack: Attack) -> None:
    assert verdict(attack, seconds=20).verdict != "holds"


def test_bounds_hold_both_executions(attack: Attack) -> None:
    found = bounds_at_the_input(attack).outputs
    for execution in attack.executions:
        y = execution(attack.network, attack.x)
        assert ((found.low <= y) & (y <= found.high)).all(), execution.name


def test_bounds_for_the_reals_do_not(attack: Attack) -> None:
    """What is tested above can fail: where the claim is true of real numbers, their bounds exclude the trigger."""
    found = bounds_at_the_input(attack, deployed=False).outputs
    y = attack.trigger(attack.network, attack.x)
    if attack.real:
        assert not ((found.low <= y) & (y <= found.high)).all()


def test_there_is_no_certificate(attack: Attack) -> None:
    if attack.arithmetic:
        pytest.skip("certificates are about float32, and there the claim is true")
    claim = attack.least_claim()
    with pytest.raises(ReplayError, match="is not excluded"):
        check(*certificate(attack.graph, claim), attack.graph, claim)


def test_files_say_the_same(attack: Attack) -> None:
    pytest.importorskip("onnx")
    from specgrad.interop import from_onnx

    (ours,), (read,) = attack.claim.cases, read_text(vnnlib(attack.claim)).cases
    assert (ours.low, ours.high) == (read.low, read.high)
    for a, b in zip(ours.alternatives, read.alternatives, strict=True):
        assert (a.rows == b.rows).all()
        assert a.limits == b.limits
    x = attack.x.astype(float)
    assert np.allclose(np.ravel(from_onnx(onnx_bytes(attack))(x)), np.ravel(attack.graph(x)), atol=1e-3)


def test_its_disarmed_twin_holds_with_a_certificate(attack: Attack) -> None:
    """The same network with a few numbers changed: we refuse because of those numbers, not because of its form."""
    network, claim = attack.disarmed
    graph = graph_of(network, attack.x)
    assert verdict(attack, seconds=ENDS, disarmed=True).verdict == "holds"
    assert min(min(m) for m in check(*certificate(graph, claim), graph, claim).margins) > 0


def test_the_page_reports_no_miss() -> None:
    page = (Path(__file__).parents[2] / "docs" / "findings" / "attacks.md").read_text()
    assert f"{len(BUILDERS)} attacks, " in page
    assert "missed by fused or by the checker: 0." in page


@pytest.mark.parametrize("seed", [1, 2])
def test_gradients_do_not_find_what_is_hidden(seed: int) -> None:
    """300 starts of 40 steps each; the corner is wrong by far more than a rounding."""
    found = hidden(seed)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        assert found.lead(found.descend(300, 40)).min() > 0.5
    assert found.lead(found.corner).item() < -0.5


def test_tf32_rounds_to_nearest() -> None:
    """Against fractions: no number of 11 bits is nearer, and of two the even one is taken."""
    for v in np.random.default_rng(0).normal(size=200).astype(FLOAT):
        exact = Fraction(float(v))
        step = Fraction(2) ** (int(np.frexp(v)[1]) - 11)
        assert Fraction(float(tf32(v))) == round(exact / step) * step  # Python rounds halves to even
    assert float(tf32(FLOAT(2**11 + 1))) == 2**11
