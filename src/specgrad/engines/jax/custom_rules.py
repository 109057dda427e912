"""Our derivative rules inside JAX's transformations: jit, grad, jvp, vjp, vmap, in any order and any depth.

ours: a kernel whose tangent is the operator's own rule (jax.custom_jvp); JAX transposes that rule.

linear: a kernel that is linear in some arguments, as a JAX primitive. Its tangent and its transpose are both the
operator's own, so reverse mode of conv runs our conv_transpose and never JAX's transpose of our conv.

The rules are written with operators, and operators on JAX arrays come back here: so every order of derivative exists.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from specgrad.op import REGISTRY, Op, Params, is_literal, shape_of
from specgrad.window import Shape

from ..base import Kernel, Lowering
from .mesh import align_varying, aval_like, traced_aval

Array = jax.Array


def as_arrays(args: Sequence[Any]) -> list[Array]:
    """Return the arguments with Python numbers as arrays of the type that the arrays have."""
    dtype = jnp.result_type(*args)
    return [jnp.asarray(a, dtype) if is_literal(a) else a for a in args]


def _as_jax_arrays(values: Sequence[Any]) -> list[Any]:
    """Return the values with NumPy arrays as JAX arrays; jax.jvp and jax.vjp hand NumPy arguments on."""
    return [jnp.asarray(v) if isinstance(v, np.ndarray) else v for v in values]


def _with_tangent(op: Op, compute: Kernel, params: Params) -> Kernel:
    """Return a kernel by `compute` whose tangent is the operator's rule (jax.custom_jvp)."""
    run = jax.custom_jvp(compute)

    def rule(primals: Sequence[Array], tangents: Sequence[Any]) -> tuple[Array, Array]:
        y = run(*primals)
        given = [None if isinstance(t, SymbolicZero) else t for t in _as_jax_arrays(tangents)]
        dy = op.tangent(y, _as_jax_arrays(primals), given, params)
        return y, jnp.zeros_like(y) if dy is None else align_varying([dy, y])[0]

    run.defjvp(rule, symbolic_zeros=True)
    return lambda *args: run(*as_arrays(args))


def ours(name: str, function: Callable[..., Array]) -> Lowering:
    """Return a lowering of the operator `name` to function(*arrays, **params) with the operator's own tangent rule."""

    def lower(*_: Shape, **params: Any) -> Kernel:
        return _with_tangent(REGISTRY[name], functools.partial(function, **params), params)

    return lower


# --- values that are not there ----------------------------------------------------------------------------------


class LinearPlaceholder:
    """Unknown linear argument during transposition: it has a shape, and results computed from it are unknown too."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape

    @staticmethod
    def __specgrad_apply__(op: Op, args: Sequence[Any], params: Params) -> LinearPlaceholder:
        return LinearPlaceholder(op.shape(*map(shape_of, args), **params))


# --- linear operators as a primitive ----------------------------------------------------------------------------

Dims = tuple[int | None, ...]
T = TypeVar("T")


@dataclass(frozen=True)
class LinearPrimitive:
    """One linear operator with its parameters, under zero or more vmaps (innermost first).

    op   the operator's record, whose derivative rules are used

    `function` computes it, `params` are (name, value) pairs, `maps` has the mapped axis of each argument per vmap.
    """

    op: Op
    function: Callable[..., Array]
    params: tuple[tuple[str, Any], ...]
    leading: tuple[int, ...]
    """The arguments that carry leading axes: mapping exactly these needs no vmap."""
    maps: tuple[Dims, ...] = ()

    def mapped(
        self, f: Callable[..., T], spread: Callable[[Dims], Any], out: Callable[[Dims], Any]
    ) -> Callable[..., T]:
        """Return f under the vmaps, with in_axes `spread(map)` and out_axes `out(map)` of each map."""
        for dims in self.maps:
            f = jax.vmap(f, in_axes=spread(dims), out_axes=out(dims))
        return f

    def forward(self) -> Callable[..., Array]:
        """Return the operator as a function of arrays, under the vmaps."""
        return self.mapped(functools.partial(self.function, **dict(self.params)), lambda dims: dims, lambda _: 0)

    def tangent(self, y: Array, args: Sequence[Array], dargs: Sequence[Array | None]) -> Array | None:
        """Return the tangent by the operator's rule, for tangents `dargs` of its arguments; None if it is zero.

        Tangents that are None stay outside the vmaps.
        """
        present = [i for i, d in enumerate(dargs) if d is not None]

        def rule(y: Array, args: Sequence[Array], given: Sequence[Array]) -> Array | None:
            tangents = dict(zip(present, given, strict=True))
            return self.op.tangent(y, args, [tangents.get(i) for i in range(len(args))], dict(self.params))

        axes = lambda dims: (0, list(dims), [dims[i] for i in present])
        return self.mapped(rule, axes, lambda _: 0)(y, list(args), [dargs[i] for i in present])

    def inner_shape(self, shape: Shape, position: int) -> Shape:
        """Return `shape`, that of the argument at `position` seen from outside, without the axes that all vmaps map."""
        for dims in reversed(self.maps):
            d = dims[position]
            shape = shape if d is None else (*shape[:d], *shape[d + 1 :])
        return shape

    def cotangents(self, gy: Array, args: Sequence[Any], missing: Sequence[int]) -> list[Array]:
        """Return the cotangents of the arguments at the positions `missing` for a cotangent `gy` of the result, summed
        where vmap repeated an argument.

        `args` has JAX's placeholders at the missing positions: of these only the shape is read.
        """
        known = [i for i in range(len(args)) if i not in missing]
        shapes = {i: self.inner_shape(args[i].aval.shape, i) for i in missing}

        def rule(gy: Array, given: Sequence[Array]) -> list[Array]:
            values = dict(zip(known, given, strict=True))
            full = [values[i] if i in values else LinearPlaceholder(shapes[i]) for i in range(len(args))]
            gargs: tuple[Any, ...] = self.op.cotangents(gy, LinearPlaceholder(gy.shape), full, dict(self.params))
            return [gargs[i] for i in missing]  # the operator is linear in these: it has a cotangent for each

        for dims in self.maps:
            rule = _vmap_pullback(rule, (0, [dims[i] for i in known]), [dims[i] for i in missing])
        return rule(gy, [args[i] for i in known])


def _vmap_pullback(
    rule: Callable[..., list[Array]], in_axes: Any, out_axes: list[int | None]
) -> Callable[..., list[Array]]:
    """Return vmap over `in_axes` of the pullback `rule`, in which an argument that was repeated (None in `out_axes`)
    collects the sum.
    """
    many = jax.vmap(rule, in_axes=in_axes, out_axes=[0 if d is None else d for d in out_axes])

    def collected(gy: Array, given: Sequence[Array]) -> list[Array]:
        return [jnp.sum(g, 0) if d is None else g for g, d in zip(many(gy, given), out_axes, strict=True)]

    return collected


_call = Primitive("specgrad_linear")


def linear(name: str, function: Callable[..., Array], leading: tuple[int, ...]) -> Lowering:
    """Return a lowering of the operator `name` to function(*arrays, **params), whose tangent and transpose are the
    operator's rules.

    `leading` are the arguments that carry leading axes: mapping exactly these needs no vmap.
    """

    def lower(*_: Shape, **params: Any) -> Kernel:
        call = LinearPrimitive(REGISTRY[name], function, tuple(params.items()), leading)
        return lambda *args: _call.bind(*align_varying(args), call=call)

    return lower


@functools.lru_cache(maxsize=4096)
def _jitted(call: LinearPrimitive) -> Callable[..., Array]:
    """Return the jitted forward function of a primitive's call, cached."""
    return jax.jit(call.forward())


def _run_primitive(*args: Array, call: LinearPrimitive) -> Array:
    """Return the result of the primitive `call` on arrays, run eagerly as a jitted function."""
    return _jitted(call)(*args)


def _abstract_result(*args: Any, call: LinearPrimitive) -> Any:
    """Return the abstract value of the primitive `call`'s result, by the shape rule; under vmaps, and for sharded
    arguments, the lowering is traced too.
    """
    if call.maps:
        out = jax.eval_shape(call.forward(), *(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in args))
        return aval_like(args[0], out.shape, out.dtype)
    shape = call.op.shape(*(a.shape for a in args), **dict(call.params))
    if any(s is not None for a in args for s in a.sharding.spec):
        aval = traced_aval(call.forward(), args)
        return args[0].update(shape=shape, dtype=aval.dtype, weak_type=False, sharding=aval.sharding)
    return aval_like(args[0], shape, jnp.result_type(*(a.dtype for a in args)))


def _jvp(primals: Sequence[Array], tangents: Sequence[Any], *, call: LinearPrimitive) -> tuple[Array, Any]:
    """Return value and tangent of the primitive `call` at `primals` along `tangents`, by the operator's rule."""
    y = _call.bind(*primals, call=call)
    dy = call.tangent(y, _as_jax_arrays(primals), [None if type(t) is ad.Zero else t for t in _as_jax_arrays(tangents)])
    return y, ad.Zero(jax.typeof(y).to_tangent_aval()) if dy is None else dy


def _transpose(gy: Any, *args: Any, call: LinearPrimitive) -> list[Any]:
    """Return, per argument of the primitive `call`, its cotangent from gy if JAX left it undefined.

    None for the others.
    """
    missing = [i for i, a in enumerate(args) if ad.is_undefined_primal(a)]
    if type(gy) is ad.Zero:
        return [ad.Zero(a.aval) if ad.is_undefined_primal(a) else None for a in args]
    cotangents = dict(
        zip(missing, call.cotangents(_as_jax_arrays([gy])[0], _as_jax_arrays(args), missing), strict=True)
    )
    return [cotangents.get(i) for i in range(len(args))]


def _batched_call(args: Sequence[Array], dims: Dims, *, call: LinearPrimitive) -> tuple[Array, int]:
    """Return (result, 0) of the primitive `call` under one more vmap over axes `dims`: a leading axis if exactly the
    `leading` arguments are mapped.
    """
    if not call.maps and tuple(i for i, d in enumerate(dims) if d is not None) == call.leading:
        moved = [a if d is None else jnp.moveaxis(a, d, 0) for a, d in zip(args, dims, strict=True)]
        return _call.bind(*moved, call=call), 0
    return _call.bind(*args, call=replace(call, maps=(*call.maps, tuple(dims)))), 0


_call.def_impl(_run_primitive)
_call.def_abstract_eval(_abstract_result)
ad.primitive_jvps[_call] = _jvp
ad.primitive_transposes[_call] = _transpose
batching.primitive_batchers[_call] = _batched_call
mlir.register_lowering(_call, mlir.lower_fun(lambda *args, call: call.forward()(*args), multiple_results=False))
