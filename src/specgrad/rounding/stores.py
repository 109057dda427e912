"""What a store in a format narrower than the sums is relative to: the value that is stored, where that is known.

A store multiplies what is stored by 1 + d, abs(d) <= u. Of a whole cell t that is u*abs(t), and abs(t) is at most the
exact value plus every error so far; of single terms, and of coefficients that were folded and stored beforehand, it is
u times the sum of absolute values, which may be far more. docs/reference/rounding.md, "Stores", has the proof.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..op import Op, Params
from ..ops.avg_pool import AVG_POOL
from ..ops.elementwise import ADD, DIV, MUL, SUB, cellwise
from ..ops.layout import SUM
from ..scalar import Array
from .arithmetic import Arithmetic, growth
from .ball import Ball, Expansion, Stores
from .context import Context
from .fusion_region import RoundingCount


def stores_after(
    context: Context,
    op: Op,
    args: Sequence[Ball],
    parts: Sequence[Expansion],
    met: RoundingCount,
    own: int,
    params: Params,
) -> Stores:
    """Return the stores of a linear node with `own` roundings, given its arguments and their expansions `parts`.

    `met` are the roundings that terms have met behind it.
    """
    inside = [k for k, p in enumerate(parts) if p.count.total]
    if met.stores == 0:
        return Stores()
    if not inside:
        return _of_first(context, op, met.stores, len(args))
    if op.exact and own == 0:
        return _of_copy(context, op, parts, inside, params)
    if op in (MUL, DIV) and all(parts[k].stores.common for k in inside):
        return Stores(value=met.stores, common=True)
    if own and len(inside) == 1 and _adds_foreign(context, op, parts[inside[0]], inside[0]):
        return Stores(value=1, before=context.arithmetic.u * args[inside[0]].size)
    return Stores(met.stores - 1, 1) if own else Stores(met.stores)


def _of_first(context: Context, op: Op, count: int, arity: int) -> Stores:
    """Return the stores of a region's first node, `count` in all: of its sum, and of the sum's quotient by one divisor.

    `arity` is its number of arguments.

    The adjoint of an average divides before it adds, so all but its last store are of terms.
    """
    whole = not op.divides or op is AVG_POOL or op.receptive_field is cellwise
    bare = (op.kernel and arity == 2) or op in (MUL, SUM)  # no constant is added
    reads = frozenset().union(*context.call.roots) if bare and context.call.roots else None
    return Stores(0 if whole else count - 1, count if whole else 1, 0.0, reads, op is SUM)


def _of_copy(context: Context, op: Op, parts: Sequence[Expansion], inside: Sequence[int], params: Params) -> Stores:
    """Return the stores of a node each of whose cells is a cell of an argument, or its negative.

    `parts` are the arguments' expansions, `inside` the numbers of those that have met roundings.
    """
    each = [parts[k].stores for k in inside]
    before: Array | float = 0.0
    if any(np.any(s.before) for s in each):
        given = [
            p.size if k in op.index_args else np.zeros(p.size.shape) + p.stores.before for k, p in enumerate(parts)
        ]
        before = np.abs(context.evaluate(op, given, params))
    reads = each[0].reads if len(parts) == 1 else None
    common = len(parts) == 1 and each[0].common
    return Stores(max(s.terms for s in each), max(s.value for s in each), before, reads, common)


def _adds_foreign(context: Context, op: Op, part: Expansion, k: int) -> bool:
    """Return whether a node adds to the region's first sum, its argument k (`part`), something that the sum does not
    read: then no coefficients can be folded, and a store before was one of that sum.

    Over boxes the ball of an argument may stand for its own error alone, so nothing is taken from it there.
    """
    reads, call = part.stores.reads, context.call
    if op not in (ADD, SUB) or context.centred or reads is None or part.count.stores != 1:
        return False
    others = [j for j in range(len(call.roots)) if j != k and call.kinds[j] != "constant"]
    return all(reads.isdisjoint(call.roots[j]) for j in others)


def store_error(arithmetic: Arithmetic, size: Array, stores: int) -> Array | float:
    """Return how far so many stores can move a value of at most `size`.

    >>> store_error(Arithmetic("bfloat16", accumulate="float32"), np.array([2.0]), 1)
    array([0.0078125])
    """
    return growth(stores, arithmetic.u) * size if stores else 0.0
