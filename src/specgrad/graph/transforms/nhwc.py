"""Functions of channels-first values, applied to arrays with the channels last (NHWC, NDHWC, NLC)."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from specgrad.errors import ParameterError, ShapeError
from specgrad.op import Value, shape_of
from specgrad.ops.layout import permute

from ..ir.tree import transform


def channels_last(fn: Callable[..., Any], *, rank: int, data: int | tuple[int, ...] = -1) -> Callable[..., Any]:
    """Return fn for arrays with the channels after the `rank` spatial axes; its results have them there too.

    (*batch, *spatial, C) -> (*batch, C, *spatial) -> fn -> (*batch, *spatial, C)

    Weights keep their axes (Cout, Cin/groups, *kernel). Of the results those are turned that have as many axes as the
    data: images and positions, not class scores. What fn computes does not change: a flattened image is in
    channels-first order, as the weights of a trained network expect. Arrays, graph variables, torch tensors and JAX
    arrays alike, and derivatives go through. XLA folds the turns into its convolutions; PyTorch sees its own
    channels_last memory format.

    Parameters
    ----------
    fn : callable
        A function of channels-first arrays, such as `conv`.
    rank : int
        Number of spatial axes.
    data : int or tuple of int, default -1
        Which positional arguments are turned.

    Returns
    -------
    callable
        Called as fn is, with data (*batch, *spatial, C).

    Raises
    ------
    ParameterError
        For rank < 1; a call raises it if there is no such argument ([P5]).

    Examples
    --------
    >>> import numpy as np
    >>> import specgrad as sg
    >>> image = np.arange(18.0).reshape(1, 3, 3, 2)                # one image of 3x3 cells with 2 channels
    >>> sg.channels_last(sg.max_pool, rank=2, data=0)(image, (2, 2), stride=1).shape
    (1, 2, 2, 2)
    >>> conv = sg.channels_last(sg.conv, rank=2)                   # conv(w, b, x): the data come last
    >>> conv(np.ones((4, 2, 3, 3)), None, image)
    array([[[[153., 153., 153., 153.]]]])
    """
    if rank < 1:
        raise ParameterError("channels_last", f"rank must be at least 1; got rank={rank}", rule="P5")
    positions = (data,) if isinstance(data, int) else tuple(data)

    @wraps(fn, updated=())  # not its __dict__, which torch.compile cannot read
    def call(*args: Any, **kwargs: Any) -> Any:
        turned, axes = list(args), set()
        for at in positions:
            if not -len(args) <= at < len(args):
                raise ParameterError("channels_last", f"no positional argument {at}; got {len(args)}", rule="P5")
            turned[at] = _to_channels_first(args[at], rank)
            axes.add(len(shape_of(args[at])))
        return transform(
            lambda _, y: _to_channels_last(y, rank) if len(shape_of(y)) in axes else y, fn(*turned, **kwargs)
        )

    return call


def _to_channels_first(x: Value, rank: int) -> Value:
    """Return (*batch, *spatial, C), with `rank` spatial axes, permuted to (*batch, C, *spatial).

    Raise ShapeError for too few axes.
    """
    ndim = len(shape_of(x))
    if ndim < rank + 1:
        need = f"{rank} spatial axes and the channels"
        raise ShapeError("channels_last", f"the data need {need}; got shape {shape_of(x)}")
    batch = ndim - rank - 1
    return permute(x, (*range(batch), ndim - 1, *range(batch, ndim - 1)))


def _to_channels_last(y: Value, rank: int) -> Value:
    """Return (*batch, C, *spatial), with `rank` spatial axes, permuted to (*batch, *spatial, C)."""
    ndim = len(shape_of(y))
    batch = ndim - rank - 1
    return permute(y, (*range(batch), *range(batch + 1, ndim), batch))
