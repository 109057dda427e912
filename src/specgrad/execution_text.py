"""Classes of executions in sentences: the field `deployment` of every verdict, report and certificate.

It imports nothing of the library: provers and checkers say the same words, and share no more than these.
"""

from __future__ import annotations

from collections.abc import Mapping

MERGED = {
    "fused": "linear nodes between two others (add, subtract, times or divided by constants, convolutions, products "
    "with constant matrices, averages, sums, layout, inference batch-norm) may be computed as one sum, in which each "
    "value counts once: its coefficients are folded beforehand, with a rounding each",
    "node": "nothing: the result of every layer is rounded and stored",
}
VALUES = {
    "fused": "results of convolutions and matrix products are computed once; what follows them may be recomputed "
    "for every reader; a maximum is compared with the cells that it was taken of",
    "node": "one per node, the same for every reader",
}
DROPPED = "a cast to a shorter format may be left out, for each reader, and sums merged across it"
ROUNDING = {"nearest": "to the nearest number", "any": "to one of the two numbers around the exact result"}


def sentences(
    dtype: str = "float32",
    operands: str | None = None,
    accumulate: str | None = None,
    execution: str = "fused",
    depth: int | None = None,
    rounding: str = "nearest",
    flush: bool | None = True,
    cores: str | None = None,
    casts: str = "stored",
    overflow: str = "open",
) -> dict[str, str]:
    """Return one sentence per choice that a runtime has.

    dtype, operands, accumulate, execution, depth, rounding, flush, casts, overflow   those of
                 `specgrad.rounding.Arithmetic`
    cores        its tensor cores in words; None: there are none

    >>> sentences()["format"], sentences(execution="node")["merged"]
    ('float32: weights, inputs and every stored value', 'nothing: the result of every layer is rounded and stored')
    """
    order = "any order of summation without cancellation"
    deep = f"a term meets at most {depth} rounding{'' if depth == 1 else 's'} per sum"
    order = order if depth is None else deep
    excluded = "Winograd, FFT and Strassen are excluded"
    excluded += "; so are TF32, float16, bfloat16 and 8-bit operands" if dtype == "float32" and not operands else ""
    excluded += "" if cores else "; so are sums by tensor cores that are truncated"
    rounded = f"factors of convolutions and matrix products are rounded to {operands} first"
    more = {"cores": f"products of convolutions and matrix products are exact and added by tensor cores: {cores}"}
    more |= {"factors": "of tensor cores are stored numbers: no constant is folded into them"}
    more = more if cores else {}
    more |= {"casts": DROPPED} if casts == "dropped" else {}
    more |= {"overflow": "what exceeds the largest number is stored as that number"} if overflow == "saturate" else {}
    return {
        "execution": execution,
        "format": f"{dtype}: weights, inputs and every stored value",
        "operands": rounded if operands else "as stored",
        "accumulators": f"{accumulate or dtype} or wider",
        "order": f"{order}, with or without fused multiply-add",
        "rounding": ROUNDING[rounding],
        "subnormals": "operands and results may count as zero, or not" if flush else "kept",
        "merged": MERGED[execution],
        "division": "by a constant may be a product with its rounded reciprocal",
        "algorithms": f"direct sums; {excluded}; normalisation layers by two passes",
        "rewriting": "quotients and products of computed values are not regrouped, exponentials not combined; "
        "constants are not moved across relu, clip, minimum or maximum, nor replaced by others; "
        "formulas of softplus, sigmoid, silu, mish, gelu and softmax are not computed by kernels with another error",
        "values": VALUES[execution],
        **more,
    }


def but(deployment: Mapping[str, str]) -> str:
    """Return the clause that a verdict adds on executions that its deployment (texts by topic) excludes for this
    network; "" if there are none.

    >>> but({"choices": "executions that ... are excluded"}), but({})
    ('; but executions that ... are excluded', '')
    """
    return f"; but {deployment['choices']}" if "choices" in deployment else ""
