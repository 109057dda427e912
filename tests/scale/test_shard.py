"""Parts on gloo processes: values and all gradients are those of one process, bit for bit on integers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import rank_jobs
import specgrad as sg
from rank_jobs import RANKS, Part, case, listed
from ranks import on_ranks
from specgrad.scale import Partition, shard
from test_parts import cells_read_elsewhere

FINDINGS = Path(__file__).parents[2] / "docs" / "findings"
EXACT = 2.0**40  # gradients below this are exact in float64: sums of whole numbers, or quarters of them
DEFAULT, ALL, SLICES = 14, 320, 8  # some of the networks are not exact, or have layers that read everything


def alone(seed: int) -> tuple[list[Tensor], Tensor, dict[str, Tensor]]:
    """Outputs, and gradients of the data and of all weights, in one process."""
    c = case(seed)
    x, w = c.x.clone().requires_grad_(), {k: t.clone().requires_grad_() for k, t in c.weights.items()}
    outputs = listed(sg.compile(c.graph, "torch")(x, w))
    sum((y * g).sum() for y, g in zip(outputs, c.cotangents, strict=True)).backward()
    zero = lambda t: t.grad if t.grad is not None else torch.zeros_like(t)
    return [y.detach() for y in outputs], zero(x), {k: zero(t) for k, t in w.items()}


def joined(like: Tensor, pieces: list[tuple[Any, Tensor]]) -> Tensor:
    """One tensor from what all ranks have, each cell from one owner."""
    whole, owners = torch.empty_like(like), torch.zeros_like(like)
    for index, values in pieces:
        whole[index] = values
        owners[index] += 1
    assert bool((owners == 1).all())
    return whole


def differences(seed: int, ranks: list[Part]) -> list[str] | None:
    """What is not as in one process; None: its numbers are too large to be exact."""
    c, (outputs, gx, gw) = case(seed), alone(seed)
    if max(float(t.abs().max()) for t in (*outputs, gx, *gw.values()) if t.numel()) > EXACT:
        return None
    parts, wrong = Partition(c.graph, c.axis, sizes=c.sizes), []
    for k, (p, y) in enumerate(zip(c.graph.output_positions, outputs, strict=True)):
        if p in parts.axes:
            same = torch.equal(joined(y, [(r.boxes[k], r.outputs[k]) for r in ranks]), y)
        else:  # all have all of it: it comes after one cell, or a sum, of everything
            same = all(torch.equal(r.outputs[k], y) for r in ranks)
        wrong += [] if same else [f"output {k}"]
    if not torch.equal(joined(gx, [(r.reads, r.gx) for r in ranks]), gx):
        wrong.append("gradient of the data")
    wrong += [f"gradient of {k}" for k, g in gw.items() if not all(torch.equal(r.gw[k], g) for r in ranks)]
    least = 2 * 8 * cells_read_elsewhere(parts)  # there and back, in float64
    if sum(r.sent for r in ranks) != least:
        wrong.append("bytes sent")
    for r in ranks:
        forward, backward = r.order
        if backward != [(into, out) for out, into in reversed(forward)]:
            wrong.append("order of exchanges")
    return wrong


def compared(seeds: list[int], mistake: str | None = None) -> list[list[str]]:
    """Of every network that can be compared, what is wrong."""
    results = on_ranks(RANKS, rank_jobs.run_cases, seeds, mistake)
    failed = [r for r in results if isinstance(r, str)]
    if failed:
        raise AssertionError("\n".join(failed))
    by_seed = [(seed, ranks) for seed, *ranks in zip(seeds, *results, strict=True)]
    checks = [differences(seed, ranks) for seed, ranks in by_seed if isinstance(ranks[0], Part)]
    return [wrong for wrong in checks if wrong is not None]


def test_networks_in_parts_are_those_of_one_process() -> None:
    checks = compared(list(range(DEFAULT)))
    assert [w for w in checks if w] == []
    assert len(checks) == DEFAULT


def test_these_networks_have_all_that_is_difficult() -> None:
    cases = [case(seed) for seed in range(DEFAULT)]
    plans = [Partition(c.graph, c.axis, sizes=c.sizes) for c in cases]
    moves = [m for parts in plans for ms in parts.exchanges.values() for m in ms]
    assert any(abs(m.source - m.target) > 1 for m in moves)  # a halo across a neighbour
    busy = [(parts, d) for c, parts in zip(cases, plans, strict=True) for d in range(RANKS) if c.sizes[d]]
    assert any(not parts.computes(p, d) for parts, d in busy for p in parts.rules)  # a part that becomes empty
    assert any(0 in c.sizes for c in cases)  # and one that is from the beginning
    assert any(len(parts.exchanges) > 3 for parts in plans)
    assert any(len(c.graph.output_positions) > 1 for c in cases)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(SLICES))
def test_hundreds_of_networks_in_parts(part: int) -> None:
    checks = compared(list(range(DEFAULT + part * ALL // SLICES, DEFAULT + (part + 1) * ALL // SLICES)))
    assert [w for w in checks if w] == []
    assert len(checks) >= 38


@pytest.mark.parametrize(
    ("mistake", "seen"),
    [("short_halo", "output"), ("not_summed", "gradient of c"), ("sent_back_to_nobody", "gradient of the data")],
)
def test_a_planted_mistake_is_seen(mistake: str, seen: str) -> None:
    assert any(what.startswith(seen) for wrong in compared(list(range(6)), mistake) for what in wrong)


def test_exchanges_that_do_not_wait_for_each_other_are_seen() -> None:
    """Ranks go back in another order: they wait for ever, are sent cells of another size, or the order is noted."""
    with pytest.raises(AssertionError, match=r"in backward|order of exchanges"):
        assert [w for w in compared(list(range(6)), "no_token") if w] == []


def test_a_unet_on_two_samples_by_two_halves_trains_as_one_process() -> None:
    weights, x, target = rank_jobs.training()
    graph = sg.trace(rank_jobs.unet, rank_jobs.SHAPES, tuple(x.shape), tuple(target.shape))
    compiled = sg.compile(graph, "torch")
    module = rank_jobs.Unet(lambda *args: compiled(*args) / 2, weights)  # DistributedDataParallel takes the mean
    loss = rank_jobs.trained(module, x, target)
    results = on_ranks(4, rank_jobs.train_on_mesh)
    assert not any(isinstance(r, str) for r in results), results
    for after, _ in results:
        assert all(torch.equal(after[k], t.detach()) for k, t in module.weights.items())
        assert not any(torch.equal(after[k], weights[k]) for k in after)
    losses = [of_samples for _, of_samples in results]
    assert losses[0] == losses[1]  # both halves of the rows have the loss of their samples
    assert (losses[0] + losses[2]) / 2 == loss


def test_sums_and_maxima_over_the_image() -> None:
    torch.manual_seed(0)
    x = torch.randint(-2, 3, (1, 2, 8, 4)).double()  # 32 cells: exact means; many ties, 1 to 16 of them
    cotangents = [torch.randint(-3, 4, s).double() * 5040 for s in ((1, 2, 8, 4), (1, 2, 8, 4), (), (1, 2, 8, 4))]
    one = x.clone().requires_grad_()
    outputs = sg.compile(sg.trace(rank_jobs.statistics, tuple(x.shape)), "torch")(one)
    sum((y * g).sum() for y, g in zip(outputs, cotangents, strict=True)).backward()
    results = on_ranks(RANKS, rank_jobs.run_statistics, x, cotangents)
    assert not any(isinstance(r, str) for r in results), results
    gradient = torch.full_like(x, torch.nan)
    for values, grad, reads, boxes in results:
        must = [y.detach()[box] for y, box in zip(outputs, boxes, strict=True)]
        assert all(torch.equal(v, y) for v, y in zip(values[:3], must[:3], strict=True))
        torch.testing.assert_close(values[3], must[3], rtol=1e-12, atol=1e-12)  # a root, and thirds
        gradient[reads] = grad
    assert float((gradient - one.grad).abs().max()) <= 1e-12 * float(one.grad.abs().max())


def test_a_layer_that_gets_everything_in_a_group_of_two_ranks() -> None:
    torch.manual_seed(0)
    whole = lambda *s: torch.randint(-2, 3, s).double()
    weights, x, scale = {k: whole(*s) for k, s in rank_jobs.GATHERING[0].items()}, whole(1, 1, 9, 5), whole(1, 2, 1, 1)
    given = [{k: t.clone().requires_grad_() for k, t in weights.items()}, x.clone().requires_grad_()]
    given.append(scale.clone().requires_grad_())
    outputs = sg.compile(sg.trace(rank_jobs.gathering, *rank_jobs.GATHERING), "torch")(*given)
    grads = torch.autograd.grad(sum((y * y).sum() for y in outputs), [*given[0].values(), *given[1:]])
    results = on_ranks(RANKS, rank_jobs.run_gathering, weights, x, scale)
    assert not any(isinstance(r, str) for r in results), results
    assert results[0] is results[2] is None
    for values, box, got, alone, plain, reads in (results[1], results[3]):
        assert all(torch.equal(v, y[index]) for v, y, index in zip(values, outputs, box, strict=True))
        assert all(torch.equal(v, y) for v, y in zip(plain, values, strict=True))
        assert values[1].shape == (1, 2, 9, 5)  # what comes from everything is whole on every rank
        assert torch.equal(got[0], grads[0])
        assert torch.equal(got[1], grads[1])
        assert torch.equal(got[3], grads[3])
        assert torch.equal(got[2], grads[2][reads])
        assert torch.equal(alone, grads[2][reads])


def test_a_mean_loss_with_labels_is_counted_once() -> None:
    torch.manual_seed(0)
    x, w = torch.randn(1, 2, 9, 5).double(), torch.randn(3, 2, 3, 3).double().requires_grad_()
    labels = torch.randint(0, 3, (1, 9, 5))
    loss = torch.nn.functional.cross_entropy(torch.nn.functional.conv2d(x, w, padding=1), labels)
    (g,) = torch.autograd.grad(loss, [w])
    results = on_ranks(RANKS, rank_jobs.run_labels, x, w.detach(), labels)
    assert not any(isinstance(r, str) for r in results), results
    for got, gw in results:
        torch.testing.assert_close(got, loss.detach(), rtol=1e-12, atol=0)
        torch.testing.assert_close(gw, g, rtol=1e-12, atol=1e-14)


def test_a_loss_that_mixes_whole_results_with_parts_is_refused() -> None:
    assert all("ranks have other gradients of a result" in r for r in on_ranks(RANKS, rank_jobs.run_mixed))


def test_wrong_calls_are_refused_on_every_rank() -> None:
    first, second, *_ = on_ranks(RANKS, rank_jobs.run_refusals)
    assert second[0] == "shard: x must have shape rank 1's part of (1, 1, 8, 8), (1, 1, 2, 8); got (1, 1, 3, 8)"
    assert second[1].startswith("shard: all numbers must be of one floating type; p.w is torch.float64")
    assert first[0] == first[1] == "shard [P5]: rank 1 was given wrong arguments"
    assert first[2] == "shard [P5]: rank 1 has another number type than rank 0"
    assert first[3] == "shard [P5]: rank 1 has another graph, axis or sizes than rank 0"
    assert first[4] == "shard [P5]: rank 1 has gradients of other inputs to compute than rank 0"
    assert second[4] == "shard [P5]: rank 0 has gradients of other inputs to compute than rank 1"
    assert first[5] == "shard: takes 2 arguments (p, x); got 1"
    assert first[6] == "shard: x must be a torch tensor; got ndarray"
    assert first[7] == "shard [P5]: sizes are for 2 ranks; the group has 4"
    assert first[8] == second[8] == "torch.Size([1, 1, 2, 8])"
    assert first[9] == "shard: labels must be torch.int64; got torch.int32"
    assert first[10] == "shard [P5]: rank 1 has other parameters, or other whole inputs, than rank 0"
    assert first[11] == "shard [P5]: rank 1 has another graph, axis or sizes than rank 0"
    assert first[12].startswith("shard: not under autocast")


def test_without_processes_it_says_so() -> None:
    graph = sg.trace(sg.relu, (1, 1, 8, 8))
    with pytest.raises(sg.ParameterError, match=r"call .*init_process_group first"):
        shard(graph)


@pytest.mark.slow
def test_the_finding_is_as_its_page_says() -> None:
    script = FINDINGS / "sharding" / "torch-dtensor-conv2d.py"
    done = subprocess.run([sys.executable, str(script)], check=True, capture_output=True, text=True, timeout=300)
    page = (FINDINGS / "sharding.md").read_text()
    assert done.stdout.splitlines()[4].split() == ["got", "(1,", "1,", "1,", "1)", "[3.0]"]  # and 10 is right
    assert [line for line in done.stdout.splitlines() if f"    {line}\n" not in page] == []
