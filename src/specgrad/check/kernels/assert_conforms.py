"""Test helper for authors of kernels: a function against what it must compute, in one line."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

from specgrad.errors import ParameterError
from specgrad.rounding import Arithmetic

from ..cases.op_case import OPERATORS
from ..cases.signature import Where, case_filter
from .arrays import LAYOUTS, check_layouts
from .ask_operator import check_operator_kernel
from .ask_reference import check_by_reference
from .examine import Kernel, ReferenceExaminer
from .reference import Reference
from .result import ConformanceSummary

OPERATOR_QUESTIONS = 400


def assert_conforms(
    kernel: Any,
    reference: Any,
    *,
    inputs: Any = None,
    formats: str | Mapping[str, str] | None = None,
    layouts: str | Sequence[str] = LAYOUTS,
    gradient: Kernel | None = None,
    arrays: str | None = None,
    arithmetic: Arithmetic | None = None,
    ranks: Collection[int] | None = None,
    where: Where | None = None,
    count: int | None = None,
    seed: int = 0,
    may_refuse: bool = True,
    check_dtype: bool = True,
    cells: int | None = 4096,
) -> ConformanceSummary:
    """Hold a kernel of your own against its meaning: every answer must be exact or explained by rounding.

    With a reference, kernel(*inputs) is called on arrays. It must return arrays of the shapes and the format of the
    reference's results, and leave its inputs, and the memory around them, as they are. A failure is shrunk.

    With the name of an operator and no inputs, shapes and attributes are drawn: kernel(*arrays, **attributes) is called
    with the arrays of the operator in order (x, w, b ...; b is left out in some questions) and with all its attributes
    by name, one number per axis. `print(kernel_signature("conv"))` lists them.

    Parameters
    ----------
    kernel : callable or arrays
        `kernel(*inputs)` returns arrays; or the arrays that it returned elsewhere, for inputs that are arrays.
    reference : str, Graph, callable, nn.Module or path
        What is right: the name of an operator, a Graph, a function of specgrad's or NumPy's calls, a PyTorch module or
        function, or a path of an ONNX file.
    inputs : arrays, mapping or strategy, optional
        Arrays; or shapes by name, of which usual numbers are drawn, and those at which kernels go wrong: {"x": ("N",
        64), "w": (64, 8)}, where a text leaves a size open; or a strategy of Hypothesis.
    formats : str or mapping of str to str, optional
        Of drawn inputs, for all or by name: "float32", "bfloat16", "float8_e4m3fn" ...; if not given, the arithmetic's.
    layouts : str or sequence of str, optional
        How inputs lie in memory, each of which is asked; by default all of "contiguous", "strided", "transposed".
    gradient : callable, optional
        `gradient(g, *arrays)` gives the cotangents of all arrays (and takes the attributes of an operator).
    arrays : str, optional
        "numpy", "ml_dtypes", "torch" or "jax": whose arrays the kernel takes; as given, else NumPy's.
    arithmetic : Arithmetic, optional
        The format of results, and how they may be summed; float32 if not given.
    ranks : collection of int, optional
        How many spatial axes to ask of an operator: ranks=(2,) for a kernel of images alone.
    where : mapping or callable, optional
        Attributes to ask: {"dilation": 1, "groups": 1}, or a function of the attributes.
    count : int, optional
        How many questions.
    seed : int, default 0
        Another seed draws other questions.
    may_refuse : bool, default True
        Whether the kernel may raise NotImplementedError for what it does not offer; at least one question must be
        answered. The result says how many were.
    check_dtype : bool, default True
        Whether results must be of the format of `arithmetic`.
    cells : int or None, default 4096
        How many cells of a large result are judged: all corners, borders and edges of tiles, and about so many that
        `seed` draws; None: all cells.

    Returns
    -------
    ConformanceSummary
        How many questions were asked, by verdict.

    Raises
    ------
    ConformanceError
        An AssertionError, if an answer is not explained by rounding: with the smallest inputs, what must come out, and
        a script that repeats it.
    ParameterError
        For a reference, inputs or options that are not known ([P5]).

    Examples
    --------
    >>> assert_conforms(lambda x: np.maximum(x, 0), "relu")
    relu: 400 of 400 questions answered (400 exact)
    >>> assert_conforms(lambda x: np.where(x > 0, x, 0), "relu")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    specgrad.check.kernels.result.ConformanceError: relu: differs, rule [P1] (NaN propagates)
    ...
    >>> def mean_square(x):
    ...     return np.mean(x * x, axis=-1)
    >>> shapes = {"x": ("N", 64)}
    >>> assert_conforms(lambda x: (x * x).sum(-1) / np.float32(64), mean_square, inputs=shapes)  # doctest: +ELLIPSIS
    mean_square: 42 of 42 questions answered (...)
    """
    if isinstance(reference, str) and reference in OPERATORS and inputs is None:
        accept = case_filter(reference, ranks, where)
        return check_operator_kernel(
            kernel, reference, gradient, arrays or "numpy", arithmetic or Arithmetic("float32"), accept,
            OPERATOR_QUESTIONS if count is None else count, seed, may_refuse,
        )  # fmt: skip
    if ranks is not None or where is not None:
        raise ParameterError("assert_conforms", "ranks= and where= go with the name of an operator alone", rule="P5")
    source = OPERATORS[reference] if isinstance(reference, str) and reference in OPERATORS else reference
    meaning = Reference(source, reference if source is not reference else None)
    return check_by_reference(
        partial(ReferenceExaminer, kernel, meaning, check_dtype=check_dtype, cells=cells, seed=seed),
        meaning.declared_shapes() if inputs is None else inputs,
        gradient=gradient, formats=formats, arrays=arrays, arithmetic=arithmetic, layouts=check_layouts(layouts),
        count=count, seed=seed, may_refuse=may_refuse,
    )  # fmt: skip
