"""Profile rule about values on a declared box of inputs: overflow, division by 0, arguments outside a domain."""

from __future__ import annotations

from collections.abc import Iterator

from ...bounds import crown
from ...errors import SpecgradError
from ...graph.graph import Graph
from ...interop.onnx.file import with_external_data
from ..declared_box import on_box
from .model_view import ModelView
from .rule import NotCheckedError, Spot, rule
from .sources import NEEDS, REQS

BOUNDS_SECONDS = 60.0


@rule(
    "S26",
    "W",
    "needs AI-007, AI-008; REQ-OP-050",
    NEEDS,
    REQS,
    says="Overflow, division by 0 and arguments outside a domain are flagged per node, on a declared box of inputs: "
    "what is not flagged cannot happen in any float32 execution of the class fused, by proven bounds (crown); what is "
    "flagged may.",
    cure="a narrower box of inputs, or a guard before the node",
)
def ranges(view: ModelView) -> Iterator[Spot]:
    """Yield a spot for each of the nodes without a finite bound although their inputs have one, on the declared box
    (S26).

    NotCheckedError if no box was given, or nothing is known of the values.
    """
    if view.box is None:
        raise NotCheckedError("no --box LO,HI was given")
    low, high = view.box
    try:
        graph, boxes = on_box(with_external_data(view.expanded, view.folder), low, high, view.sizes, "profile")
        unbounded = set(crown(graph, *boxes, seconds=BOUNDS_SECONDS).unbounded)
    except SpecgradError as error:
        raise NotCheckedError(f"nothing is known of the values: {error}") from None
    layers = origins(graph, unbounded)
    for node in view.nodes:
        if (node.proto.name or next(filter(None, node.proto.output), "")) in layers:
            yield Spot(
                f"for inputs in [{low:g}, {high:g}] no finite bound is proven here, and its inputs have some", node.at()
            )


def origins(graph: Graph, unbounded: set[str]) -> set[str]:
    """Return the names of the layers in which an unbounded value comes from bounded ones."""
    without = {i for i, n in enumerate(graph.nodes) if n.name in unbounded}
    return {graph.nodes[i].group for i in without if without.isdisjoint(graph.nodes[i].operands())}
