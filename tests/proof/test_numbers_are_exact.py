"""Numbers beside the weights: rows of a property, numbers of a program's text, divisors."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import specgrad as sg
from specgrad.bounds import certify, prove
from specgrad.bounds.search.certificates.prove import NoCertificateError
from specgrad.ops.avg_pool import AVG_POOL
from specgrad.proof import check
from specgrad.proof.base.deployed_graph import deployed_graph
from specgrad.proof.base.rationals import ReplayError
from specgrad.proof.extracted.piecewise_linear import piecewise_linear
from specgrad.proof.extracted.scalar_network import ScalarNetwork
from specgrad.proof.files.certificate import CaseProof, encode
from specgrad.properties.property import Alternative, Case, Property
from specgrad.rounding import Arithmetic

UNIT = Fraction(1, 2**23)


def never(row: list[float], limit: Fraction, low: list[Fraction], high: list[Fraction]) -> Property:
    """row.y <= limit never happens on a box."""
    case = Case(tuple(low), tuple(high), (Alternative(np.array([row]), (limit,)),))
    return Property(len(low), len(row), (case,))


def test_a_certificate_of_rows_that_were_cut_to_whole_numbers() -> None:
    """y0 - 1.9*y1 <= 0 happens; a certificate that y0 - y1 <= 0 does not was valid for it."""
    graph = sg.trace(lambda x: sg.linear(np.eye(2, dtype=np.float32), None, x), (2,))
    low, high = [Fraction(5, 4), Fraction(1, 2)], [Fraction(3, 2), Fraction(1)]
    true, false = (never([1.0, c], Fraction(0), low, high) for c in (-1.0, -1.9))
    certificate = prove(graph, true)
    assert certify(graph, false).verdict == "violated"
    check(certificate, graph, true)
    with pytest.raises(ReplayError, match="not among the certificate's"):
        check(certificate, graph, false)


def test_rows_that_are_not_whole_are_not_written() -> None:
    graph = deployed_graph(sg.trace(lambda x: sg.relu(x), (1,)))
    one = np.ones(1, np.float32)
    case = CaseProof(one, one, ((np.array([[0.5]]), (Fraction(0),), 0),))
    with pytest.raises(ReplayError, match=r"whole numbers; got 0\.5"):
        encode(graph, [case], None)


@pytest.mark.parametrize("number", [1 + Fraction(1, 2**53), 2**53 + 1], ids=str)
def test_a_number_that_float64_lacks(number: Fraction | int) -> None:
    """Rounded up, as "any" allows, it is a float32 number further than the one that float64 has for it."""
    graph = sg.trace(lambda x: sg.mul(x, number), (1,))
    x = 1 + 3 * UNIT
    rounded = Fraction(float(number)) * (1 + UNIT)
    assert rounded > number
    step = UNIT * 2 ** (int(x * rounded).bit_length() - 1)
    y = -(-(x * rounded) // step) * step  # the product, rounded up: an execution
    claim = never([-1.0], -y, [x], [x])
    with pytest.raises(NoCertificateError):
        prove(graph, claim, arithmetic=Arithmetic("float32", rounding="any"))
    with pytest.raises(ReplayError, match="a number that float32 lacks"):
        ScalarNetwork(deployed_graph(graph), np.ones(1, np.float32), np.ones(1, np.float32))


def test_a_whole_divisor_that_float32_lacks() -> None:
    """16780111 is rounded, so is its reciprocal, so is the product: 2.5 units off, and 2 were counted."""
    divisor, x = 16780111, np.float32(1.0003453)
    y = x * (np.float32(1) / np.float32(divisor))  # an execution of the class fused
    exact = Fraction(float(x)) / divisor
    assert abs(Fraction(float(y)) / exact - 1) > Fraction(249, 100) / 2**24
    graph = sg.trace(lambda x: sg.avg_pool(x, (1,), divisor=divisor), (1,))
    claim = never([1.0], Fraction(float(y)), [Fraction(float(x))], [Fraction(float(x))])
    assert certify(graph, claim).verdict != "holds"
    with pytest.raises((NoCertificateError, ReplayError)):
        prove(graph, claim)


@pytest.mark.parametrize(("kernel", "divisor", "more"), [(16, "inside", 1), (17, "inside", 2), (17, "padded", 2),
                                                         (3, 256, 1), (3, -257, 2), (3, 0.5, 2)])  # fmt: skip
def test_divisors_that_some_format_rounds(kernel: int, divisor: object, more: int) -> None:
    """17*17 is 289, and bfloat16 has 288 and 290."""
    node = sg.trace(lambda x: sg.avg_pool(x, (kernel, kernel)), (1, 1, 20, 20)).nodes[-1]
    assert node.op is AVG_POOL
    assert AVG_POOL.roundings is not None
    assert AVG_POOL.roundings((1, 1, 20, 20), window=node.params["window"], divisor=divisor) == kernel**2 + more


@pytest.mark.parametrize(("low", "high"), [(-0.1, 0.5), (-0.5, 0.1), (-0.1, 0.7), (None, 0.1), (-0.1, None)])
def test_ends_of_a_clamp_that_float32_lacks(low: float | None, high: float | None) -> None:
    """A runtime has the float32 number next to an end on either side, which the proven checker must be told."""
    (node,) = (n for n in sg.trace(lambda x: sg.clamp(x, low, high), (1,)).nodes if n.op.name == "clamp")
    told = piecewise_linear(node, UNIT)
    assert told is not None
    for end in (v for v in (low, high) if v is not None):
        near = np.float32(end)
        beyond = np.nextafter(near, np.float32(np.copysign(np.inf, end - float(near))))
        for v in (near,) if float(near) == end else (near, beyond):
            assert abs(Fraction(float(v)) - Fraction(end)) <= told.absolute
