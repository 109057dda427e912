"""NumPy's scalars are numbers wherever an attribute is one."""

from __future__ import annotations

import numpy as np
import pytest

import specgrad as sg

pytestmark = pytest.mark.quick


def test_numpys_numbers_are_numbers(tmp_path) -> None:
    x = np.array([1.0, 2.0, 3.0, 5.0])
    for number in (np.float64(2), np.float32(2), np.int64(2), np.float16(2)):
        calls = [
            lambda v, n=number: sg.smooth_max_pool(v, (2,), beta=n),
            lambda v, n=number: sg.avg_pool(v, (2,), divisor=n),
            lambda v, n=number: sg.lp_pool(v, (2,), p=n),
            lambda v, n=number: sg.softplus(v, beta=n),
            lambda v, n=number: sg.power(sg.leaky_relu(v, n), n),
            lambda v, n=number: sg.clamp(v, -n, n) + sg.fill(v, n),
        ]
        for k, call in enumerate(calls):
            graph = sg.trace(call, (4,))
            sg.save(graph, tmp_path / "graph.json", force=True)
            params = [v for n in graph.nodes for v in n.params.values()]
            assert not any(isinstance(v, np.generic) for v in params), k
        assert sg.avg_pool(x, (2,), divisor=number).tolist() == [1.5, 4.0]
        assert sg.lp_pool(np.array([3.0, 4.0]), (2,), p=number).tolist() == [5.0]
    for wrong in (np.bool_(True), np.complex64(1), np.float64(0), np.float64("nan")):
        with pytest.raises(sg.ParameterError, match=r"smooth_max_pool \[P5\]: beta must be a finite number"):
            sg.smooth_max_pool(x, (2,), beta=wrong)
