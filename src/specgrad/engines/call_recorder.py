"""Recorder of the engine functions behind one public call, replayed later as one function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..call_cache import RECORDER, Program


class CallRecorder:
    """The engine functions that ran in one public call, and on which tensors.

    `complete` is False once something cannot be replayed: a tensor from elsewhere, or a mutable setting.
    """

    def __init__(self, tensor: type, tensors: Sequence[Any]) -> None:
        self.tensor = tensor
        self.complete = True
        self._alive: list[Any] = []  # alive: nothing else gets the identity of one of them
        self._names: dict[int, str] = {}
        self._steps: list[tuple[list[str], list[str], bool]] = []  # what each is given, what it gives, if several
        self._scope: dict[str, Any] = {}
        for t in tensors:
            self._name(t)
        self._inputs = list(self._names.values())

    def run(self, f: Program, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> Any:
        """Return f(*args, **kwargs) and record it as one step; None means that f does not apply, and is no step."""
        given = kwargs or {}
        token = RECORDER.set(None)
        try:
            y = f(*args, **given)
        finally:
            RECORDER.reset(token)
        if y is not None:
            words = [self._argument_source(a) for a in args] + [
                f"{k}={self._argument_source(a)}" for k, a in given.items()
            ]
            names = [self._name(t) for t in (y if type(y) is tuple else (y,))]
            self._scope[f"f{len(self._steps)}"] = f
            self._steps.append((words, names, type(y) is tuple))
        return y

    def program(self, result: Any) -> Program | None:
        """Return the recorded steps up to `result` as one function of the call's tensors; None if they are incomplete.

        The function returns None where a step does.
        """
        words = [self._argument_source(r, of_call=True) for r in (result if type(result) is tuple else (result,))]
        if not self.complete:
            return None
        scope, several = self._scope, type(result) is tuple
        if self._steps == [(self._inputs, words, several)]:
            scope["program"] = scope["f0"]
        else:
            exec(compile(self._source(words, several), f"{__file__} program", "exec"), scope)
        program: Program = scope["program"]
        return program

    def _source(self, words: list[str], several: bool) -> str:
        """Return the Python source of the program that returns the values named by `words`, as a tuple if `several`."""
        lines = [f"def program({', '.join(self._inputs)}):"]
        for number, (given, names, many) in enumerate(self._steps):
            call = f"f{number}({', '.join(given)})"
            if number == len(self._steps) - 1 and (names, many) == (words, several):
                return "\n    ".join([*lines, f"return {call}"])
            lines.append(f"y = {call}")
            lines.append("if y is None: return None")  # no answer for these values: as at the first call
            lines.append(f"{', '.join(names)} = y")
        lines.append(f"return ({', '.join(words)},)" if several else f"return {words[0]}")
        return "\n    ".join(lines)

    def _name(self, t: Any) -> str:
        """Return a new variable name for t, and record it.

        The recording is incomplete if t has one already or is no tensor. A tensor with two names may be two tensors at
        the next call.
        """
        name = f"t{len(self._alive)}"
        if not isinstance(t, self.tensor) or id(t) in self._names:
            self.complete = False
        self._alive.append(t)
        self._names[id(t)] = name
        return name

    def _argument_source(self, value: Any, *, of_call: bool = False) -> str:
        """Return the variable name of a recorded tensor, or of a constant that is made from a setting `value` and
        recorded.

        `of_call`: it is a result, which a recorded step must have made. The recording is incomplete if none has, or if
        the setting cannot be kept.
        """
        if id(value) in self._names:
            return self._names[id(value)]
        constant = f"c{len(self._scope)}"
        try:
            self._scope[constant] = frozen(value)
        except TypeError:
            self.complete = False
        self.complete = self.complete and not of_call  # a result that no step made
        return constant


IMMUTABLE = (int, float, bool, str, type(None))


def frozen(value: Any) -> Any:
    """Return an immutable setting (or list, tuple, shape of such) as is; raise TypeError for any other value."""
    kind = type(value)
    if kind in IMMUTABLE:
        return value
    if kind in (tuple, list):
        return kind(frozen(v) for v in value)
    if isinstance(value, tuple) and all(type(v) is int for v in value):
        return tuple(value)  # a shape, of a type of its own
    raise TypeError(kind)
