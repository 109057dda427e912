"""Cache of public calls by types, shapes and settings, for engines.

The first call with some shapes, types and settings runs as always, while a recorder notes which functions of the engine
ran on which tensors. Public functions mean the same on graph variables, which have shapes and no values; so this record
is what every later call with the same shapes, types and settings comes to. What cannot be recorded in full (a tensor
from elsewhere, a result that is one of the arguments) runs as always, each time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import wraps
from inspect import Parameter, signature
from typing import Any, NamedTuple, ParamSpec, Protocol, TypeVar

Program = Callable[..., Any]  # of the tensors among a call's arguments, in their order
Kinds = tuple[type, ...]


class CallSignature(NamedTuple):
    """A public function `fn` and the types (`kinds`) of all its arguments, defaults included: this decides how a call
    is read.
    """

    fn: Callable[..., Any]
    kinds: Kinds
    keywords: tuple[str, ...]  # the names of the last arguments, where fn wants them
    programs: dict[Kinds, Callable[..., Any]]  # where an engine enters what it has for these types

    def general(self, values: Sequence[Any]) -> Any:
        """Return fn of these values, without the cache."""
        first = len(values) - len(self.keywords)
        return self.fn(*values[:first], **dict(zip(self.keywords, values[first:], strict=True)))


Caller = Callable[[CallSignature, tuple[Any, ...]], Any]
CALLERS: dict[type, Caller] = {}
"""Who remembers calls with an argument of this type; engines enter themselves here."""
ENTER: list[Callable[[type], object]] = []
"""What enters the engine of a type in CALLERS, if there is one: the first call is remembered too."""

P = ParamSpec("P")
Result = TypeVar("Result")

SOURCE = """
def call({given}):
    __kinds = ({kinds},)
    __call = __programs(__kinds)
    return __first(__kinds, ({values},)) if __call is None else __call({values})
"""
READ = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.VAR_POSITIONAL, Parameter.KEYWORD_ONLY)


def cached_call(fn: Callable[P, Result]) -> Callable[P, Result]:
    """Return `fn` with its calls cached by argument types, shapes and settings.

    fn must be decided by these alone. The wrapper is generated with the names and defaults of fn: a call is then one
    look into a dictionary, by types.
    """
    parameters = list(signature(fn).parameters.values())
    if not parameters or any(p.kind not in READ for p in parameters):
        return fn
    keywords = tuple(p.name for p in parameters if p.kind is Parameter.KEYWORD_ONLY)
    programs: dict[Kinds, Callable[..., Any]] = {}

    def first(kinds: Kinds, values: tuple[Any, ...]) -> Any:
        form = CallSignature(fn, kinds, keywords, programs)
        if _not_cacheable(kinds):
            programs[kinds] = (lambda *v: form.general(v)) if keywords else fn
            return form.general(values)
        for kind in kinds:
            for enter in ENTER:
                enter(kind)
            caller = CALLERS.get(kind)
            if caller is not None:
                return caller(form, values)
        return form.general(values)

    scope: dict[str, Any] = {f"__default{i}": p.default for i, p in enumerate(parameters)}
    scope |= {"__name__": __name__, "__programs": programs.get, "__first": first, "__type": type}
    many = {p.name for p in parameters if p.kind is Parameter.VAR_POSITIONAL}
    source = SOURCE.format(
        given=_given(parameters),
        kinds=", ".join(f"*map(__type, {p.name})" if p.name in many else f"__type({p.name})" for p in parameters),
        values=", ".join(f"*{p.name}" if p.name in many else p.name for p in parameters),
    )
    exec(compile(source, f"{__file__} for {fn.__name__}", "exec"), scope)  # ours, where errors look for the user's line
    call: Callable[P, Result] = wraps(fn)(scope["call"])
    return call


def _not_cacheable(kinds: Kinds) -> bool:
    """Return whether some argument is a graph variable, or none can be an engine's tensor."""
    if any(hasattr(kind, "__specgrad_apply__") for kind in kinds):
        return True
    return all(kind.__module__ in ("builtins", "numpy", "fractions") for kind in kinds)


def _given(parameters: Sequence[Parameter]) -> str:
    """Return the parameters as the text of a function definition."""
    words: list[str] = []
    for i, p in enumerate(parameters):
        star = "*" if p.kind is Parameter.VAR_POSITIONAL else ""
        if p.kind is Parameter.KEYWORD_ONLY and not any(w.startswith("*") for w in words):
            words.append("*")
        words.append(star + p.name + ("" if p.default is Parameter.empty else f"=__default{i}"))
    return ", ".join(words)


class Recording(Protocol):
    """Protocol of the recorder of engine calls (specgrad.engines.call_recorder); `complete` until something cannot be
    replayed.
    """

    complete: bool

    def run(self, f: Program, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return f(*args, **kwargs), and record it as one step."""


RECORDER: ContextVar[Recording | None] = ContextVar("specgrad_recorder", default=None)


def record_call(f: Program, *args: Any, **kwargs: Any) -> Any:
    """Return f(*args, **kwargs), recorded if a public call is being recorded."""
    recorder = RECORDER.get()
    return f(*args, **kwargs) if recorder is None else recorder.run(f, args, kwargs)
