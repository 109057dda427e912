"""The errors of the library: each names the operator, the rule, what was given and what would be right."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any


def printable(text: object) -> str:
    """Every control character, escape sequence and invisible mark as its code, so that the text is one visible line.

    Names and numbers from a file are data: a terminal and a page show them, and never obey them.

    >>> printable("conv\\x1b[2J\\n\\u202e")
    'conv\\\\x1b[2J\\\\n\\\\u202e'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in str(text))


MOST_QUOTED = 600


def quoted(text: str) -> str:
    """The text of an error about a file, which quotes what stands there: one line, and not a long one."""
    return printable(text if len(text) <= MOST_QUOTED else f"{text[:MOST_QUOTED]}...")


class SpecgradError(Exception):
    """Base of every error raised on purpose.

    >>> e = SpecgradError("max_pool", "kernel must be positive", rule="W1")
    >>> print(e)
    max_pool [W1]: kernel must be positive
    >>> e.operator, e.rule, e.__notes__
    ('max_pool', 'W1', ['  the rule: print(specgrad.rule("W1"))'])
    """

    def __init__(self, operator: str, text: str, *, rule: str | None = None) -> None:
        self.operator = operator
        self.rule = rule
        super().__init__(f"{operator} [{rule}]: {text}" if rule else f"{operator}: {text}")
        if rule:
            super().add_note(f'  the rule: print(specgrad.rule("{rule}"))')

    def add_note(self, note: str) -> None:
        """Where, and what was built so far; the label stays last, so that a traceback ends with it."""
        super().add_note(note)
        if self.rule:
            self.__notes__[-2:] = reversed(self.__notes__[-2:])

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled with its text and fields: an error of a worker must reach the one who waits for it."""
        return _again, (type(self), self.args, self.__dict__)


def _again(kind: type[SpecgradError], args: tuple[Any, ...], fields: dict[str, Any]) -> SpecgradError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(fields)
    return error


class ShapeError(SpecgradError, ValueError):
    """Sizes that do not fit each other: rules [W1], [W2], [C1], [C2]."""


class ParameterError(SpecgradError, TypeError):
    """An attribute that we do not honour: rule [P5]."""


class UnsupportedError(SpecgradError, NotImplementedError):
    """A combination of operator and engine, or of operator and transformation, that has no line."""


class ScalarError(SpecgradError, ArithmeticError):
    """A value the scalar type cannot express or decide: exp of a rational, the larger of two overlapping balls."""


class ContradictionError(AssertionError):
    """Two answers that exclude each other: one of them is false, and that is nobody's fault but ours.

    No SpecgradError, so that nobody on the way takes it for "not known".
    """


# --- optional packages ------------------------------------------------------------------------------------------------

PACKAGES = {
    "flint": ("python-flint", "balls"),
    "dask": ("dask", "dask"),
    "distributed": ("dask", "dask"),
    "jax": ("jax", "jax"),
    "obstore": ("obstore", "scale"),
    "onnx": ("onnx", "onnx"),
    "onnxruntime": ("onnxruntime", "runtimes"),
    "onnxscript": ("onnxscript", "runtimes"),
    "openvino": ("openvino", "runtimes"),
    "ray": ("ray", "ray"),
    "rich": ("rich", "cli"),
    "safetensors": ("safetensors", "save"),
    "tensorstore": ("tensorstore", "scale"),
    "torch": ("torch", "torch"),
    "typer": ("typer", "cli"),
    "vnnlib": ("vnnlib", "vnnlib"),
}
"""Of every module that we can do without: the package that has it, and our extra that installs it."""


class MissingPackageError(SpecgradError, ImportError):
    """An optional package is missing, or is broken: what needs it, and what to install.

    >>> print(MissingPackageError("balls need", "flint"))
    balls need python-flint: pip install 'specgrad[balls]'
    """

    def __init__(self, who: str, module: str, broken: str = "") -> None:
        self.package, self.extra = PACKAGES[module]
        state = f", which is installed but does not import ({broken})" if broken else ""
        super().__init__(f"{who} {self.package}{state}", f"pip install 'specgrad[{self.extra}]'")


def need(module: str, who: str) -> None:
    """Called before an optional module is imported: it is there, or the error says what to install.

    who   what cannot be done without it, and the verb: "balls need"

    >>> need("numpy", "specgrad needs")
    """
    if sys.modules.get(module) is not None:
        return
    try:
        import_module(module)
    except (ImportError, OSError) as error:  # OSError: a shared library that does not load
        absent = isinstance(error, ModuleNotFoundError) and error.name == module
        raise MissingPackageError(who, module, "" if absent else quoted(f"{type(error).__name__}: {error}")) from error
