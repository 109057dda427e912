"""The PyTorch engine: a table of lowerings, the algorithms behind some of them, and graphs as modules."""

import sys

from ...errors import need

need("torch", "the PyTorch engine needs")

from .call_cache import call
from .composites import COMPOSITES
from .lowerings import ENGINE, TABLE, run
from .modes import enable_torch_compile

__all__ = ["COMPOSITES", "ENGINE", "TABLE", "call", "enable_torch_compile", "run"]

if "torch._dynamo" in sys.modules:  # last: it calls operators, which look for `run` here
    enable_torch_compile()
