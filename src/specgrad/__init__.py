"""specgrad: one network, one meaning."""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from .late_tables import FILLED_BY

FILLED_BY |= {"operators": ("specgrad.ops", "specgrad.graph.ir.node"), "engines": ("specgrad.engines",)}

if TYPE_CHECKING:
    from .public_names import *

    __version__: str
else:

    def __getattr__(name: str) -> Any:
        """What is loaded when somebody asks: `__version__`, which the installed package says; rooms; public names."""
        if name == "__version__":
            from importlib.metadata import version

            return version("specgrad")
        if name != "__all__" and name.startswith("__"):
            raise AttributeError(f"module 'specgrad' has no attribute {name!r}")
        if find_spec(f"{__name__}.{name}") is not None:
            return import_module(f"{__name__}.{name}")
        names = import_module(f"{__name__}.public_names")
        if name not in ("__all__", *names.__all__):
            raise AttributeError(f"module 'specgrad' has no attribute {name!r}")
        value = globals()[name] = getattr(names, name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__getattr__("__all__"), "__all__", "__version__"})
