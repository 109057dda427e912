"""The errors of the library: each names the operator, the rule, what was given and what would be right."""

from __future__ import annotations

import sys
from importlib import import_module
from types import TracebackType
from typing import Any


def printable(text: object) -> str:
    """Return the text as one visible line: control characters, escapes and invisible marks as their codes.

    Names and numbers from a file are data: a terminal and a page show them, and never obey them.

    >>> printable("conv\\x1b[2J\\n\\u202e")
    'conv\\\\x1b[2J\\\\n\\\\u202e'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in str(text))


MAX_QUOTED_CHARS = 600


def quoted(text: str) -> str:
    """Return the text of an error that quotes a file: one line of at most MAX_QUOTED_CHARS characters."""
    return printable(text if len(text) <= MAX_QUOTED_CHARS else f"{text[:MAX_QUOTED_CHARS]}...")


class SpecgradError(Exception):
    """Base of every error raised on purpose: one visible line, whatever names it quotes.

    Parameters
    ----------
    operator : str
        What was called.
    text : str
        What is wrong, and what would be right.
    rule : str, optional
        Label of the rule that is broken.

    Examples
    --------
    >>> e = SpecgradError("max_pool", "kernel must be positive", rule="W1")
    >>> print(e)
    max_pool [W1]: kernel must be positive
    >>> e.operator, e.rule, e.__notes__
    ('max_pool', 'W1', ['  the rule: print(specgrad.rule("W1"))'])
    """

    def __init__(self, operator: str, text: str, *, rule: str | None = None) -> None:
        self.operator = operator
        self.rule = rule
        super().__init__(printable(f"{operator} [{rule}]: {text}" if rule else f"{operator}: {text}"))
        if rule:
            super().add_note(f'  the rule: print(specgrad.rule("{rule}"))')

    def add_note(self, note: str) -> None:
        """Add a note before the one that names the rule, so that a traceback ends with the rule."""
        super().add_note(note)
        if self.rule:
            self.__notes__[-2:] = reversed(self.__notes__[-2:])

    def _render_traceback_(self) -> list[str]:
        """Return the traceback that IPython and notebooks show, as lines: IPython's own, without our frames.

        So the last line of code is the user's. `__traceback__` keeps all frames.
        """
        shell = sys.modules["IPython"].get_ipython()
        trace, hidden = outside(self.__traceback__)
        lines: list[str] = shell.InteractiveTB.structured_traceback(type(self), self, trace)
        shown = f"{hidden} lines inside specgrad are hidden: traceback.print_exception(sys.last_value) shows them"
        return [*lines, shown] if hidden else lines

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle with text and fields, so that an error of a worker process arrives complete."""
        return _unpickle, (type(self), self.args, self.__dict__)


def is_own(module: object) -> bool:
    """Return whether a module's name, `__name__` among the globals of a frame, is of this package."""
    return str(module).partition(".")[0] == __name__.partition(".")[0]


def outside(trace: TracebackType | None) -> tuple[TracebackType | None, int]:
    """Return a traceback without the frames of this package, and how many these were."""
    if trace is None:
        return None, 0
    rest, hidden = outside(trace.tb_next)
    if is_own(trace.tb_frame.f_globals.get("__name__")):
        return rest, hidden + 1
    return TracebackType(rest, trace.tb_frame, trace.tb_lasti, trace.tb_lineno), hidden


def _unpickle(kind: type[SpecgradError], args: tuple[Any, ...], fields: dict[str, Any]) -> SpecgradError:
    """Return an error of the type `kind` with these arguments and fields, without calling __init__."""
    error = kind.__new__(kind, *args)
    error.__dict__.update(fields)
    return error


class ShapeError(SpecgradError, ValueError):
    """Sizes that do not fit each other: rules [W1], [W2], [C1], [C2].

    Parameters
    ----------
    operator : str
        What was called.
    text : str
        What is wrong, and what would be right.
    rule : str, optional
        Label of the rule that is broken.

    Examples
    --------
    >>> from specgrad import max_pool
    >>> max_pool([1, 2], (3,))
    Traceback (most recent call last):
    specgrad.errors.ShapeError: max_pool [W2]: window of 3 cells does not fit 2 + 0 + 0 input cells on axis 0
    """


class ParameterError(SpecgradError, TypeError):
    """An attribute that we do not honour: rule [P5].

    Parameters
    ----------
    operator : str
        What was called.
    text : str
        What is wrong, and what would be right.
    rule : str, optional
        Label of the rule that is broken.

    Examples
    --------
    >>> from specgrad import max_pool
    >>> max_pool([1, 2], (2,), stride=0.5)
    Traceback (most recent call last):
    specgrad.errors.ParameterError: max_pool [P5]: stride must be an int or one int per axis; got 0.5
    """


class FileError(SpecgradError, ValueError):
    """A file that is not what it should be, as `text` says, read by `operator`; what it quotes of the file is one short
    line.
    """

    def __init__(self, text: str, operator: str = "load") -> None:
        super().__init__(operator, quoted(text))


class TimeLimitError(SpecgradError):
    """The time that was given (specgrad.deadline) is over."""


class UnsupportedError(SpecgradError, NotImplementedError):
    """A combination of operator and engine, or of operator and transformation, that is not implemented.

    Parameters
    ----------
    operator : str
        What was called.
    text : str
        What is wrong, and what would be right.
    rule : str, optional
        Label of the rule that is broken.

    Examples
    --------
    >>> print(UnsupportedError("save", "a parameter of type Random cannot be written"))
    save: a parameter of type Random cannot be written
    """


class ScalarError(SpecgradError, ArithmeticError):
    """A value the scalar type cannot express or decide: exp of a rational, the larger of two overlapping balls.

    Parameters
    ----------
    operator : str
        What was called.
    text : str
        What is wrong, and what would be right.
    rule : str, optional
        Label of the rule that is broken.

    Examples
    --------
    >>> from specgrad import exact, exp
    >>> exp(exact([1]))
    Traceback (most recent call last):
    specgrad.errors.ScalarError: exp: exact rationals have no exp; use floats or balls (specgrad.balls)
    """


class ContradictionError(AssertionError):
    """Raised when two results exclude each other: one of them is false, which is a fault of this library.

    It is no SpecgradError, so that no handler takes it for "not known".
    """


class WorkerError(RuntimeError):
    """A worker gave no answer, and its program did not cause that: an error of specgrad or of the machine."""


# --- optional packages ------------------------------------------------------------------------------------------------

PACKAGES = {
    "flint": ("python-flint", "balls"),
    "PIL": ("pillow", "images"),
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

    Parameters
    ----------
    who : str
        What needs it, with the verb.
    module : str
        How it is imported.
    broken : str, default ""
        How it fails to import; "" if it is missing.

    Examples
    --------
    >>> print(MissingPackageError("balls need", "flint"))
    balls need python-flint: pip install 'specgrad[balls]'
    """

    def __init__(self, who: str, module: str, broken: str = "") -> None:
        self.package, self.extra = PACKAGES[module]
        state = f", which is installed but does not import ({broken})" if broken else ""
        super().__init__(f"{who} {self.package}{state}", f"pip install 'specgrad[{self.extra}]'")


def need(module: str, who: str) -> None:
    """Import an optional module, or raise MissingPackageError that says what to install.

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
