"""Calls that an engine has seen before run again without reading their arguments anew.

The first call with some shapes, types and settings runs as always, while a recorder notes which functions of the engine
ran on which tensors. Public functions mean the same on graph variables, which have shapes and no values; so what was
noted is what every later call with the same shapes, types and settings comes to. What cannot be noted in full (a
tensor from elsewhere, a result that is one of the arguments) runs as always, each time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec, Protocol, TypeVar

Program = Callable[..., Any]  # of the tensors among a call's arguments, in their order
Caller = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]

CALLERS: dict[type, Caller] = {}
"""Who remembers calls whose first argument has this type; engines enter themselves here."""

P = ParamSpec("P")
Result = TypeVar("Result")


def settled(fn: Callable[P, Result]) -> Callable[P, Result]:
    """A public function of tensors and settings: what it comes to is decided by shapes, types and settings alone."""

    caller_of = CALLERS.get

    @wraps(fn)
    def call(*args: P.args, **kwargs: P.kwargs) -> Result:
        caller = caller_of(type(args[0])) if args else None
        if caller is None:
            return fn(*args, **kwargs)
        result: Result = caller(fn, args, kwargs)
        return result

    return call


class Recording(Protocol):
    """Whoever notes what runs (specgrad.engines.record)."""

    complete: bool

    def run(self, f: Program, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any: ...


RECORDER: ContextVar[Recording | None] = ContextVar("specgrad_recorder", default=None)


def noted(f: Program, *args: Any, **kwargs: Any) -> Any:
    """f(*args, **kwargs), noted if a call is being recorded."""
    recorder = RECORDER.get()
    return f(*args, **kwargs) if recorder is None else recorder.run(f, args, kwargs)
