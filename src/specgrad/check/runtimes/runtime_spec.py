"""The record of one runtime: which packages it needs, and how a test case is written in its language."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from specgrad.errors import ParameterError

from ..cases.op_case import OpCase


class NotOffered(Exception):  # noqa: N818 - not an error but an answer
    """Raised if the runtime has no operator, or no attribute, for a case: the case is not run."""


@dataclass(frozen=True)
class Runtime:
    """A runtime; program(case) is Python text that needs only it and numpy, and defines run(**arrays) -> list.

    packages      names of the packages whose versions are reported
    gradients     whether its programs answer for cotangents too
    environment   variables that its process gets
    name          as in --runtime
    """

    name: str
    packages: tuple[str, ...]
    program: Callable[[OpCase], str]
    model: str = ""
    """A program that runs a whole ONNX file: run(model, /, **inputs) with its bytes; "" if it reads none."""
    gradients: bool = False
    flush: bool = False
    """Whether it flushes subnormal numbers to zero."""
    functions: str | None = None
    """Whose exp, tanh, ... it has: a name in specgrad.declared_errors.MEASURED; None: they were not measured."""
    cost: int = 1
    """How many times fewer questions to ask: compilation per question is slow."""
    environment: Mapping[str, str] = field(default_factory=dict)
    device: str = ""
    """The word in its programs that names the device; "" if it has only one."""
    demand: str = ""
    """A line that fails where the machine lacks a device."""

    def on(self, device: str) -> Runtime:
        """Return this runtime on another device; its function errors are unknown then, and it may flush subnormals.

        ParameterError if it has no such device.
        """
        if not self.device or not re.fullmatch(r"[\w.:-]+", device):
            raise ParameterError("check", f"runtime {self.name} has no device {device!r}", rule="P5")

        def moved(text: str) -> str:
            check = f"    {self.demand.format(device=device)}\n" if self.demand else ""
            return re.sub(r"(def run\(.*\):\n)", lambda start: start[0] + check, text.replace(self.device, device))

        return replace(
            self,
            name=f"{self.name}:{device}",
            program=lambda question: moved(self.program(question)),
            model=moved(self.model),
            flush=True,
            functions=None,
            device=device,
        )

    def versions(self) -> dict[str, str]:
        """Return the installed version of every package it needs; PackageNotFoundError names the missing one."""
        return {package: version(package) for package in self.packages}

    def installed(self) -> bool:
        """Return whether every package it needs is installed."""
        return not self.missing()

    def missing(self) -> list[str]:
        """Return the packages that are still to be installed."""
        return [package for package in self.packages if not _is_installed(package)]


def _is_installed(package: str) -> bool:
    """Return whether a package is installed."""
    try:
        return bool(version(package))
    except PackageNotFoundError:
        return False


def call_text(function: str, *args: Any, **named: Any) -> str:
    """Return the source text function(args, name=value, ...) of a call with `named` arguments; a `SourceExpression`
    stands as it is, other values by their repr.
    """
    shown = [str(a) if isinstance(a, SourceExpression) else repr(a) for a in args]
    shown += [f"{k}={v if isinstance(v, SourceExpression) else repr(v)}" for k, v in named.items()]
    return f"{function}({', '.join(shown)})"


class SourceExpression(str):
    """Source text of an expression, not a string value."""
