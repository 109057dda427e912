"""Greedy tokens: argmax over the last axis of networks that take ids; proven, estimated to stay, open."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import specgrad as sg
from specgrad.check import preserve, tolerance
from specgrad.check.decisions.decision import parse
from specgrad.check.decisions.flip_search import Execution
from specgrad.check.decisions.margins import DecisionProblem, margins_at
from specgrad.check.decisions.runtime_pool import Runtimes
from specgrad.check.decisions.samples import samples_of
from specgrad.check.decisions.usual_margins import count_estimated
from specgrad.check.verdicts.usual import RUN_FACTOR
from specgrad.errors import ParameterError, UnsupportedError
from specgrad.rounding import Arithmetic
from specgrad.rounding.usual_error import usual_error

NODE = Arithmetic(execution="node")
IDS = np.random.default_rng(0).integers(0, 20, (2, 6))


class Decoder(nn.Module):
    """A causal attention and a gated layer behind norms by the root of the mean square, and a head of 20 tokens."""

    def __init__(self, n: int = 16) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(20, n)
        self.q, self.k, self.v, self.gate, self.up, self.down = (nn.Linear(n, n) for _ in range(6))
        self.head = nn.Linear(n, 20)

    def norm(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.table(ids)
        h = self.norm(x)
        scores = self.q(h) @ self.k(h).transpose(-1, -2) / 4
        hidden = torch.full((ids.shape[1],) * 2, torch.finfo(torch.float32).min).triu(1)
        x = x + F.softmax(scores + hidden, -1) @ self.v(h)
        h = self.norm(x)
        y: torch.Tensor = self.head(self.norm(x + self.down(F.silu(self.gate(h)) * self.up(h))))
        return y


NET = Decoder().eval()


class Twins(Decoder):
    """The same, with a head whose last token is the first, moved by less than float32 can tell."""

    def __init__(self) -> None:
        super().__init__()
        with torch.no_grad():
            self.head.weight[-1] = self.head.weight[0] = 3 * self.head.weight[0]
            self.head.bias[-1] = self.head.bias[0] = 1 + 2.0**-23


def test_a_decoder_of_ids_has_a_tolerance() -> None:
    """By node the whole is proven to a thousandth, and the module in float64 and float32 is inside."""
    proven = tolerance(NET, IDS[:1], arithmetic=NODE)
    assert proven.tolerance < 1e-3
    with torch.no_grad():
        y = NET(torch.from_numpy(IDS[:1])).numpy()
        exact = Decoder().double()(torch.from_numpy(IDS[:1])).numpy()
    assert (np.abs(y - proven.exact[0]) <= proven.tolerances[0]).all()
    assert (np.abs(exact - proven.exact[0]) <= proven.tolerances[0]).all()


def test_greedy_tokens_are_proven_one_by_one() -> None:
    result = preserve(NET, IDS, axis=-1, arithmetic=NODE, runtimes=())
    assert result.decisions == {"proven": 12, "estimated": 0, "open": 0}
    with torch.no_grad():
        y = NET(torch.from_numpy(IDS)).numpy()
    assert [s.decisions for s in result.samples] == [6, 6]
    nearest = min(s.margin or 0.0 for s in result.samples)
    margins = np.sort(y, -1)
    assert abs(nearest - (margins[..., -1] - margins[..., -2]).min()) < 1e-4


def test_what_is_not_proven_is_estimated_or_open() -> None:
    """In bfloat16 nothing is proven, and some tokens are estimated to stay; twins stay open."""
    wide = preserve(NET, IDS[:1], axis=-1, arithmetic=Arithmetic("bfloat16"), runtimes=())
    assert wide.decisions["proven"] == 0
    assert 0 < wide.decisions["estimated"] + wide.decisions["open"] == 6
    assert "estimated to stay (no proof)" in wide.sentences()[1]
    twins = preserve(Twins().eval(), IDS[:1], axis=-1, arithmetic=NODE, runtimes=())
    assert twins.decisions["open"] > 0
    assert twins.decisions["estimated"] == 0


def test_an_estimate_counts_both_outputs() -> None:
    """By hand: the margin over every other token is more than ten times the usual error of both."""
    samples = samples_of(NET, IDS[:1], Arithmetic("bfloat16"))
    usual = usual_error(samples.graph, samples.numbers(0), "torch", samples.formats, "bfloat16")
    (y,), (s,) = usual.values, usual.deviations
    kept = 0
    for row, off in zip(y[0], s[0], strict=True):
        top = int(np.argmax(row))
        kept += all(row[top] - row[j] > RUN_FACTOR * (off[top] + off[j]) for j in range(20) if j != top)
    result = preserve(NET, IDS[:1], axis=-1, arithmetic=Arithmetic("bfloat16"), runtimes=())
    assert result.decisions["estimated"] == kept
    assert kept == 0 or kept < 6


def test_engines_are_fed_ids() -> None:
    samples = samples_of(NET, IDS, NODE)
    (outputs,) = Runtimes(("torch",), samples.graph).run(samples.fed(0)).values()
    with torch.no_grad():
        assert np.allclose(outputs[0], NET(torch.from_numpy(IDS[:1])).numpy(), atol=1e-5)


@pytest.mark.parametrize("arithmetic", [NODE, Arithmetic()])
def test_operands_of_another_format_have_no_estimate(arithmetic: Arithmetic) -> None:
    short = Arithmetic(operands="bfloat16", execution=arithmetic.execution)
    result = preserve(Twins().eval(), IDS[:1], axis=-1, arithmetic=short, runtimes=())
    assert result.decisions["estimated"] == 0


@pytest.mark.parametrize(("times", "estimated"), [(1.5, 0), (3.0, 1)])
def test_a_margin_is_measured_by_the_error_of_both_outputs(times: float, estimated: int) -> None:
    """Two sums of 1,024 terms, apart by so many times the factor and the usual error of one of them."""
    rng = np.random.default_rng(0)
    half, weights = rng.normal(size=(1, 512)).astype(np.float32), rng.normal(size=1024)
    x = np.concatenate((half, half[:, ::-1]), 1)  # the same backwards
    net = nn.Linear(1024, 2)
    with torch.no_grad():
        net.weight.copy_(torch.from_numpy(np.stack((weights, weights[::-1]))))
        net.bias.zero_()
        samples = samples_of(net, x, NODE)
        usual = usual_error(samples.graph, samples.numbers(0), "torch", samples.formats, "float32")
        (s,) = usual.deviations
        net.bias[0] = times * RUN_FACTOR * float(s.max())
    result = preserve(net, x, arithmetic=NODE, runtimes=())
    assert result.decisions == {"proven": 0, "estimated": estimated, "open": 1 - estimated}
    samples = samples_of(net, x, NODE)
    question = DecisionProblem(samples.graph, parse("argmax"), NODE, (), 0, samples.formats, 60.0)
    margins = margins_at(question, samples.numbers(0))
    pair = [Execution(str(k), np.zeros((1, 2)), np.array([k]), True) for k in (0, 1)]
    assert count_estimated(question, samples.numbers(0), margins, ()) == estimated
    assert count_estimated(question, samples.numbers(0), margins, pair) == 0  # who decides differently was seen


@pytest.mark.parametrize("ids", [IDS + 0.5, IDS.astype(np.uint64) + 2**63, IDS * 2.0**70])
def test_ids_that_would_be_cut_are_refused(ids: np.ndarray) -> None:
    """The tokens of 1 were "proven" for 1.5, which no runtime takes."""
    table = np.random.default_rng(1).normal(size=(20, 4)).astype(np.float32)
    graph = sg.trace(lambda i: sg.gather(table, i, axis=0), sg.Index((1, 6)))
    with pytest.raises(ParameterError, match="must have whole numbers, of which int64 holds each; got"):
        preserve(graph, ids, axis=-1, runtimes=())
    assert preserve(graph, IDS.astype(float), axis=-1, runtimes=()).verdict == "proven"


@pytest.mark.parametrize("wrong", [20, -21])
def test_ids_outside_of_their_table_are_refused(wrong: int) -> None:
    table = np.random.default_rng(1).normal(size=(20, 4)).astype(np.float32)
    graph = sg.trace(lambda i: sg.gather(table, i, axis=0), sg.Index((1, 6)))
    ids = IDS.copy()
    ids[-1, 2] = wrong
    with pytest.raises(ParameterError, match="is outside of the table that it chooses from"):
        preserve(graph, ids, axis=-1, runtimes=())


def test_no_box_lies_around_ids() -> None:
    with pytest.raises(UnsupportedError, match="this model takes ids"):
        preserve(NET, IDS[:1], axis=-1, eps=0.5, runtimes=())
