"""One pinned opset. Where an operator's form has changed since the file's opset, its node is written in the new form.

Whether the new node means the same is not decided here: both files are imported and compared.
"""

from __future__ import annotations

from specgrad.errors import UnsupportedError

from ..model_view import ONNX_DOMAINS
from .draft import Draft, remove_attributes, set_input

PINNED = 25
"""In which every operator of texts.VERSIONS has the version that its text is about."""
IR_VERSION = 13  # the least that may import it
AXES = {"ReduceSum": 13, "Squeeze": 13, "Unsqueeze": 13}
AXES |= dict.fromkeys(("ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2"), 18)
AXES |= dict.fromkeys(("ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"), 18)
"""The version that made `axes` an input."""


def pin(draft: Draft) -> None:
    """Set the pinned opset, and rewrite the nodes whose form it changes.

    UnsupportedError for a newer opset, and for operators of other domains.
    """
    old = draft.opset
    if old > PINNED:
        raise UnsupportedError("normalise", f"the file has opset {old}; {PINNED} is the newest that is written")
    others = [o for o in draft.model.opset_import if o.domain not in ONNX_DOMAINS]
    used = {n.domain for n in draft.model.graph.node}
    for o in others:
        if o.domain in used:
            raise UnsupportedError("normalise", f"the file uses operators of the domain {o.domain!r}")
    del draft.model.opset_import[:]
    draft.model.opset_import.add(domain="", version=PINNED)
    draft.model.ir_version = IR_VERSION
    draft.count_change(f"opset {old} is now {PINNED}", int(old != PINNED))
    for node in draft.model.graph.node:
        node.ClearField("domain")
    _move_axes(draft, old)
    _write_split_sizes(draft)


def _move_axes(draft: Draft, old: int) -> None:
    """Move the attribute `axes` to an input, in every node of the draft whose operator changed so after opset `old`.

    Each is counted among the draft's changes.
    """
    for node in draft.nodes(*AXES):
        axes = node.attributes.get("axes")
        if old < AXES[node.operator] and axes is not None:
            set_input(node.proto, 1, draft.int64_constant(f"{node.proto.output[0]}_axes", list(axes)))
            remove_attributes(node.proto, "axes")
            draft.count_change("axes moved from an attribute to an input")


def _write_split_sizes(draft: Draft) -> None:
    """Write the part sizes of every Split, which versions before 18 may leave out."""
    for node in draft.nodes("Split"):
        if node.input(1):
            continue
        axis = node.attributes.get("axis", 0)
        sizes = node.attributes.get("split") or [draft.shape(str(name))[axis] for name in node.proto.output]
        set_input(node.proto, 1, draft.int64_constant(f"{node.proto.output[0]}_split", list(sizes)))
        remove_attributes(node.proto, "split", "num_outputs")
        draft.count_change("sizes of a Split written")
