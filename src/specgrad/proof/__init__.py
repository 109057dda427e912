"""Certificates and their checker: all code that a proof of specgrad must be trusted to, kept apart from the search for
proofs.

Certificate    the bytes of a proof
check          replay it: what is proven, of which network, on which box, for which executions
ReplayError    why it proves nothing
"""

from importlib import import_module
from typing import Any

HOME = {"Certificate": "api", "check": "api", "Checked": "files.certificate", "ReplayError": "base.rationals"}


def __getattr__(name: str) -> Any:
    """Import a public name on first use: `specgrad.bounds` reads `base.executions`, and must not need python-flint.

    AttributeError for another name.
    """
    if name not in HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{HOME[name]}", __name__), name)


def __dir__() -> list[str]:
    """Return the public names of this package."""
    return sorted(HOME)
