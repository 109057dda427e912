"""Accuracy sheets: error bounds per ONNX operator, in two parts (propagated, introduced), and per node of a model.

SHEETS      the formulas, by ONNX's name; `errors` evaluates one over exact numbers
accuracy    the same with a model's weights, for all inputs of a box: numbers per layer
"""

from .operator_sheets import SHEETS
from .per_layer import Accuracy, LayerAccuracy, accuracy
from .sheet import Errors, Sheet, errors

__all__ = ["SHEETS", "Accuracy", "Errors", "LayerAccuracy", "Sheet", "accuracy", "errors"]
