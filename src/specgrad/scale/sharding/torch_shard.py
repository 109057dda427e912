"""`shard`: one network on several processes, each with its part of one spatial axis, over `torch.distributed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...errors import need
from ...graph.graph import Graph
from ...partition.partition import Partition

if TYPE_CHECKING:
    from .sharded_graph import Sharded


def shard(
    graph: Graph, group: Any = None, axis: int = 2, *, sizes: Sequence[int] | None = None, allow_whole: bool = False
) -> Sharded:
    """Return a graph split along an axis over the processes of a group: `out[s.box] = s(params, x[s.reads])`.

    Every rank calls it with the same graph. It takes what the graph takes: data that goes along the axis in parts, all
    else whole on every rank, the same everywhere. Its results that go along the axis are in parts too, others whole.
    Layers see the cells of other ranks that they need, and padding only at the true border; what is sent is the least
    that computing each cell once needs, `s.parts.cells_moved`.

    Derivatives are autograd's: call `backward` on every rank. The loss is the sum of what the ranks make of their
    parts, and of what they all make of whole results, counted once; one that mixes both is refused, and belongs into
    the graph. Gradients of data in parts stay with the owner; those of all other arguments are summed over the ranks
    (one all-reduce), and are whole on every rank.

    Parameters
    ----------
    graph : Graph
        The network.
    group : process group or DeviceMesh, optional
        A process group, a DeviceMesh of one dimension (`mesh["rows"]`); all processes if not given.
    axis : int, default 2
        The axis of the first data input, and of all that goes along it.
    sizes : sequence of int, optional
        Cells of it per rank, also none; equal as far as whole cells are, if not given.
    allow_whole : bool, default False
        With True, layers that read all of the axis get all of it on every rank; else they are refused by name, except
        sums and maxima (global averages, group normalisation, a mean loss), which are added up.

    Returns
    -------
    Sharded
        Called as the graph is, on the parts of this rank.

    Raises
    ------
    UnsupportedError
        For layers that read all of the axis, unless `allow_whole`.
    ParameterError
        For sizes that do not fit ([P5]).
    MissingPackageError
        Without PyTorch.

    Examples
    --------
    >>> import specgrad as sg, tempfile, torch, torch.distributed as dist
    >>> store = dist.FileStore(tempfile.mkstemp()[1], 1)
    >>> dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    >>> graph = sg.trace(lambda p, x: sg.conv(p["w"], None, x, padding=1), {"w": (1, 1, 3, 3)}, (1, 1, 8, 8))
    >>> s = shard(graph, axis=2)
    >>> y = s({"w": torch.ones(1, 1, 3, 3)}, torch.ones(1, 1, 8, 8)[s.reads])
    >>> y.shape, s.box
    (torch.Size([1, 1, 8, 8]), (slice(0, 1, None), slice(0, 1, None), slice(0, 8, None), slice(0, 8, None)))
    >>> dist.destroy_process_group()
    """
    need("torch", "shard needs")
    from .sharded_graph import Sharded, link_of

    link = link_of(group)
    counted = {"count": link.count} if sizes is None else {"sizes": sizes}
    return Sharded(Partition(graph, axis, **counted, allow_whole=allow_whole), link)
