"""Values under jax.shard_map: JAX tracks over which mesh axes each value varies (`check_vma`), and so must our rules.

Outside shard_map nothing varies, and all of this is the identity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

from ...window import Shape

Array = jax.Array


def varying(x: Array) -> frozenset[str]:
    """Return the mesh axes over which x may differ from device to device."""
    axes: frozenset[str] = jax.typeof(x).manual_axis_type.varying
    return axes


def align_varying(args: Sequence[Array]) -> list[Array]:
    """Return the arguments, all varying over the union of their mesh axes; the transpose is a psum."""
    axes: frozenset[str] = frozenset().union(*map(varying, args))
    return [cast_varying(a, axes) for a in args]


def cast_varying(x: Array, names: Iterable[str]) -> Array:
    """Return x as a value that may also differ from device to device along the mesh axes `names`."""
    missing = tuple(sorted(set(names) - varying(x)))
    return lax.pcast(x, missing, to="varying") if missing else x


def aval_like(aval: Any, shape: Shape, dtype: Any) -> Any:
    """Return the abstract value of a result of this shape and type that varies as `aval`, split along axes that keep
    their size.
    """
    spec: list[Any] = [None] * len(shape)
    if len(shape) == len(aval.shape):
        spec = [s if n == m else None for s, n, m in zip(_mesh_axes(aval), shape, aval.shape, strict=True)]
    sharding = NamedSharding(aval.sharding.mesh, PartitionSpec(*spec))
    return aval.update(shape=shape, dtype=dtype, weak_type=False, sharding=sharding)


def _mesh_axes(aval: Any) -> list[Any]:
    """Return the mesh axis that splits each axis of the abstract value `aval`, None for axes that are not split."""
    spec = tuple(aval.sharding.spec)
    return [*spec, *[None] * (len(aval.shape) - len(spec))]


def is_split(x: Any) -> bool:
    """Return whether the type of x says over which mesh axes it is split (explicit sharding, jax.make_mesh)."""
    return any(s is not None for s in jax.typeof(x).sharding.spec)


def traced_aval(f: Any, args: Sequence[Any]) -> Any:
    """Return the abstract value of f's result as JAX infers it, its sharding included."""
    structs = [jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=a.sharding) for a in args]
    (out,) = jax.make_jaxpr(f)(*structs).out_avals
    return out


def replicated_sharding(x: Array) -> NamedSharding | None:
    """Return the sharding that replicates a sum over a split batch; None if x's type has no sharding."""
    return NamedSharding(jax.typeof(x).sharding.mesh, PartitionSpec()) if is_split(x) else None


def struct_like(x: Array, shape: Shape) -> jax.ShapeDtypeStruct:
    """Return a jax.ShapeDtypeStruct of this shape, otherwise like x."""
    aval = aval_like(jax.typeof(x), shape, x.dtype)
    return jax.ShapeDtypeStruct(shape, x.dtype, sharding=aval.sharding, manual_axis_type=aval.manual_axis_type)


def adjoint(f: Callable[[Array], Array], argument: jax.ShapeDtypeStruct, gy: Array) -> Array:
    """Return the cotangent of the argument of a linear f, by JAX's own transpose."""
    gx: Array
    (gx,) = jax.linear_transpose(f, argument)(gy)
    return gx
