"""Accuracy sheets: error bounds per ONNX operator, in two parts (propagated, introduced), and per node of a model.

SHEETS      the formulas, by ONNX's name; `errors` evaluates one over exact numbers
"""

from .sheet import Errors, Sheet, errors
from .sheets import SHEETS

__all__ = ["SHEETS", "Errors", "Sheet", "errors"]
