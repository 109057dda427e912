"""Facts of an operator's record beside its meaning, as plain data: names in other libraries, errors, sheet texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Names:
    """Names of one operator in other libraries; "" where a library has no operator of this meaning.

    torch    as a program writes it, F being torch.nn.functional: "torch.tanh", "F.silu"
    jax      as a program writes it, jnp being jax.numpy: "jnp.tanh", "jax.nn.silu"
    numpy    NumPy's ufunc
    aten     the overload that an exported PyTorch program calls
    onnx     ONNX's operator
    opsets   versions of its schema that are read as this operator; (): the importer has a converter of its own

    Engines, importers, the exporter and the programs that ask runtimes use them where their tables have no entry.
    """

    torch: str = ""
    jax: str = ""
    numpy: str = ""
    aten: str = ""
    onnx: str = ""
    opsets: tuple[int, ...] = ()


@dataclass(frozen=True)
class DeclaredErrors:
    """Errors of one function per runtime, measured by benchmarks/ulps.py and benchmarks/runtime_ulps.py, not proven.

    relative_to   "y": the result, "1": absolute, "x": the argument, "1+y"
    units         of u, by the runtime's name in specgrad.declared_errors.VERSIONS; a runtime without one is held to
                  what its parts give, or to the largest of all (specgrad.declared_errors)
    wrong         where a runtime is wrong, in words: findings, which no units cover
    """

    relative_to: str
    units: Mapping[str, float]
    wrong: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SheetText:
    """Text of a function's sheet of error bounds (specgrad.safety.accuracy): its formula in X, and conditions.

    turning   where it turns, in words; "": it increases
    """

    formula: str
    turning: str = ""
    conditions: tuple[tuple[str, str], ...] = ()
