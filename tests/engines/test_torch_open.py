"""One module for every size: it looks up what it keeps by the open sizes alone.

That hides neither a wrong argument nor a constant that has changed.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

import specgrad as sg
from specgrad.engines.torch.symbolic import OpenCompiled
from specgrad.errors import ShapeError

KERNEL = np.random.default_rng(0).normal(size=(3, 2, 1))


def module() -> OpenCompiled:
    return sg.compile(
        sg.trace(lambda p, x: sg.conv(KERNEL, None, x) * p["scale"], {"scale": ()}, ("N", 2, "L=4")), "torch"
    )


SCALE = {"scale": torch.tensor(2.0, dtype=torch.float64)}


def right(x: torch.Tensor, kernel: torch.Tensor) -> torch.Tensor:
    return 2 * torch.nn.functional.conv1d(x, kernel)


def test_a_size_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    net, x = module(), torch.ones(5, 2, 4, dtype=torch.float64)
    first = net(SCALE, x)
    monkeypatch.setattr(net._others, "fitted", lambda args: pytest.fail("known sizes are computed again"))
    assert torch.equal(net(SCALE, x), first)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((5, 3, 4), "input x has size 2 in axis 1; got 3"),
        ((5, 2, 4, 1), r"input x has 3 axes \(N, 2, L\)"),
        ((5,), r"input x has 3 axes \(N, 2, L\)"),
    ],
)
def test_a_known_size_does_not_hide_a_wrong_shape(shape: tuple[int, ...], message: str) -> None:
    net = module()
    net(SCALE, torch.ones(5, 2, 4, dtype=torch.float64))
    with pytest.raises(ShapeError, match=message):
        net(SCALE, torch.ones(shape, dtype=torch.float64))
    with pytest.raises(ShapeError, match="p lacks scale"):
        net({}, torch.ones(5, 2, 4, dtype=torch.float64))
    with pytest.raises(ShapeError, match=r"input p\.scale"):
        net({"scale": torch.ones(2)}, torch.ones(5, 2, 4, dtype=torch.float64))


def test_constants_are_ours_at_every_size_whatever_becomes_of_them() -> None:
    net, kernel = module(), torch.from_numpy(KERNEL)
    (place,) = net.graph_module._buffers
    x = torch.randn(5, 2, 4, dtype=torch.float64)
    assert torch.allclose(net(SCALE, x), right(x, kernel))
    net.float()
    assert net({"scale": torch.tensor(2.0)}, x.float()).dtype == torch.float32
    net.graph_module.register_buffer(place, 3 * kernel)
    assert torch.allclose(net(SCALE, x), right(x, 3 * kernel))
    with torch.no_grad():
        net.graph_module._buffers[place].mul_(2)
    assert torch.allclose(net(SCALE, x), right(x, 6 * kernel))
    swapped = torch.func.functional_call(net, {f"graph_module.{place}": kernel}, (SCALE, x))
    assert torch.allclose(swapped, right(x, kernel))
    assert torch.allclose(net(SCALE, x), right(x, 6 * kernel))


def test_more_sizes_than_are_kept() -> None:
    net, kernel = module(), torch.from_numpy(KERNEL)
    for n in (*range(1, 40), 3):
        x = torch.randn(n, 2, 3, dtype=torch.float64)
        assert torch.allclose(net(SCALE, x), right(x, kernel))
    assert len(net._others.known) <= 16
