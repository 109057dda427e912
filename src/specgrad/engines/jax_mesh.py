"""Values under jax.shard_map: JAX tracks over which mesh axes each value varies (`check_vma`), and so must our rules.

Outside shard_map nothing varies, and all of this is the identity.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

from ..window import Shape

Array = jax.Array


def varying(x: Array) -> frozenset[str]:
    """The mesh axes over which x may differ from device to device."""
    found: frozenset[str] = jax.typeof(x).manual_axis_type.varying
    return found


def aligned(args: Sequence[Array]) -> list[Array]:
    """The arguments, all varying over the axes over which any of them does; the transpose of this cast is a psum."""
    axes: frozenset[str] = frozenset().union(*map(varying, args))
    return [_cast(a, axes - varying(a)) for a in args]


def _cast(x: Array, axes: frozenset[str]) -> Array:
    return lax.pcast(x, tuple(sorted(axes)), to="varying") if axes else x


def aval_like(aval: Any, shape: Shape, dtype: Any) -> Any:
    """The abstract value of a result that varies as this argument does."""
    unsplit = NamedSharding(aval.sharding.mesh, PartitionSpec(*[None] * len(shape)))
    return aval.update(shape=shape, dtype=dtype, weak_type=False, sharding=unsplit)


def struct_like(x: Array, shape: Shape) -> jax.ShapeDtypeStruct:
    """A value that is not there yet: of this shape, otherwise like x."""
    aval = aval_like(jax.typeof(x), shape, x.dtype)
    return jax.ShapeDtypeStruct(shape, x.dtype, sharding=aval.sharding, manual_axis_type=aval.manual_axis_type)
