"""Arrays as a kernel takes them: of NumPy, PyTorch or JAX, in a format, lying in memory in a known way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np

from specgrad.errors import ParameterError, need
from specgrad.rounding.formats.number_format import SHORT
from specgrad.scalar import Array

MANY_CELLS = 2**20  # of an array: beyond, it is handed out as it lies, without memory around it
GUARD = 64  # cells before and behind a contiguous array, which no kernel may read or write
LAYOUTS = ("contiguous", "strided", "transposed")
Give = Callable[[Array, str], Any]  # an array of numbers of that format, as the kernel takes them; perhaps itself


def _as_numpy_type(a: Array, dtype: str) -> Any:
    """Return the array a in the type `dtype`; raise ParameterError for types that NumPy lacks."""
    if dtype in SHORT:
        raise ParameterError("arrays", f'NumPy has no {dtype}; give arrays="torch", "jax" or "ml_dtypes"', rule="P5")
    return a.astype(dtype, copy=False)


def _as_ml_dtypes(a: Array, dtype: str) -> Any:
    """Return the array a in the type `dtype` of NumPy, or else of ml_dtypes.

    MissingPackageError without ml_dtypes.
    """
    need("ml_dtypes", "NumPy arrays of bfloat16 or float8 need")
    import ml_dtypes

    return a.astype(getattr(ml_dtypes, dtype) if dtype in SHORT else dtype, copy=False)


def _as_torch_tensor(a: Array, dtype: str) -> Any:
    """Return a copy of an array as a PyTorch tensor of the type that PyTorch calls `dtype`.

    MissingPackageError without PyTorch.
    """
    need("torch", "tensors of PyTorch need")
    import torch

    return torch.from_numpy(a if a.flags.writeable else a.copy()).to(getattr(torch, dtype))


def _as_jax_array(a: Array, dtype: str) -> Any:
    """Return an array as a JAX array of type `dtype`.

    MissingPackageError without JAX.
    """
    need("jax", "arrays of JAX need")
    import jax.numpy as jnp

    return jnp.asarray(a).astype(dtype)


ARRAYS: dict[str, Give] = {
    "numpy": _as_numpy_type,
    "ml_dtypes": _as_ml_dtypes,
    "torch": _as_torch_tensor,
    "jax": _as_jax_array,
}


def giver(arrays: str) -> Give:
    """Return what makes arrays of that library; ParameterError for another name."""
    if arrays not in ARRAYS:
        raise ParameterError("arrays", f"must be one of {', '.join(ARRAYS)}; got {arrays!r}", rule="P5")
    return ARRAYS[arrays]


def type_name(given: Any) -> str:
    """Return the name of the type of the array `given`, whosever it is: float32, bfloat16; "" of what is no array."""
    return str(getattr(given, "dtype", "")).removeprefix("torch.")


def library_of(given: Any) -> str:
    """Return whose array this is, a key of ARRAYS; "numpy" of lists and numbers too."""
    kind = type(given).__module__.partition(".")[0]
    own = "ml_dtypes" if type_name(given) in SHORT else "numpy"
    return {"torch": "torch", "jax": "jax", "jaxlib": "jax"}.get(kind, own)


def to_numpy(given: Any) -> Any:
    """Return an array of any library as NumPy's; bfloat16 and float8 become float32, which holds them."""
    if type_name(given) in SHORT:
        given = given.float() if hasattr(given, "float") else given.astype("float32")
    return np.asarray(given.detach() if hasattr(given, "detach") else given)


@dataclass(eq=False)
class HandedOut:
    """An input as a kernel gets it.

    view    the input
    base    all memory around it, which holds NaN (of integers the largest) beside the input
    before  a digest of that memory before the call
    """

    view: Any
    base: Any
    before: int

    @property
    def is_changed(self) -> bool:
        """Whether the kernel has written into the input, or beside it."""
        return _digest(self.base) != self.before


def hand_out(a: Array, layout: str, give: Give, dtype: str) -> HandedOut:
    """Return the array `a` as a kernel gets it, in memory as `layout` ("contiguous", "strided", "transposed") says.

    `give` makes the kernel's arrays, of the type `dtype`. Beside the input lie NaN, so that a kernel that reads there
    shows.

    >>> hand_out(np.float32([[1, 2]]), "strided", ARRAYS["numpy"], "float32").base
    array([[ 1., nan,  2., nan]], dtype=float32)
    """
    beside = np.nan if a.dtype.kind == "f" else np.iinfo(a.dtype).max if a.dtype.kind in "iu" else True
    if layout == "strided" and a.ndim:
        whole = np.full((*a.shape[:-1], 2 * a.shape[-1]), beside, a.dtype)
        whole[..., ::2] = a
        base = give(whole, dtype)
        view = base[..., ::2]
    elif layout == "transposed" and a.ndim > 1:
        base = give(np.array(a.T, order="C"), dtype)
        view = base.permute(*reversed(range(a.ndim))) if hasattr(base, "permute") else base.T
    elif a.size > MANY_CELLS:
        base = view = give(a, dtype)
    else:
        whole = np.full(a.size + 2 * GUARD, beside, a.dtype)
        whole[GUARD : GUARD + a.size] = a.ravel()
        base = give(whole, dtype)
        view = base[GUARD : GUARD + a.size].reshape(a.shape)
    return HandedOut(view, base, _digest(base))


def _digest(base: Any) -> int:
    """Return a checksum of the bytes of `base`, an array or tensor; 0 of a JAX array, which nobody can change."""
    if hasattr(base, "untyped_storage"):
        import torch

        base = base.contiguous().reshape(-1).view(torch.uint8).numpy()
    return crc32(np.ascontiguousarray(base).reshape(-1).view(np.uint8).data) if isinstance(base, np.ndarray) else 0


def check_layouts(layouts: Any) -> tuple[str, ...]:
    """Return the names of layouts as a tuple; ParameterError for none at all, and for unknown ones."""
    named = (layouts,) if isinstance(layouts, str) else tuple(layouts)
    if not named or set(named) - set(LAYOUTS):
        raise ParameterError("layouts", f"must be among {', '.join(LAYOUTS)}; got {layouts!r}", rule="P5")
    return named
