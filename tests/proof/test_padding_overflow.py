"""Constants that overflow only where they meet padding: no reader of certificates accepts a network with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flint")
pytest.importorskip("torch")

import second_checker as second
import specgrad as sg
from second_network import Network, RefusedError
from specgrad.bounds.search.certificates.prove import prove
from specgrad.proof.base.deployed_graph import deployed_graph
from specgrad.proof.base.rationals import ReplayError
from specgrad.proof.extracted.encode import CheckerInput
from specgrad.proof.files.certificate import check, network_digest, read_certificate, sealed
from specgrad.proof.files.entries import read_json
from specgrad.properties.property import Property, robustness


def net(outer: float, scale: float) -> sg.Graph:
    """Of one cell with padding, a convolution's outer weights meet padding alone. Then * scale / scale."""
    w = np.float32([[[outer, 1.0, outer]]])

    def scaled(x: Any) -> Any:
        y = sg.reshape(sg.conv(w, None, x, padding=1), (1,)) * scale * (1 / scale)
        return sg.concat([y, np.float32([9.0])], axis=0)

    graph = sg.trace(scaled, (1, 1, 1))
    return deployed_graph(graph)


def forged(graph: sg.Graph) -> tuple[bytes, bytes, Property]:
    """The certificate of a harmless network, which says that it is one of this network."""
    question = robustness(np.float32([[[1.0]]]), 1, 0.25, 2)
    harmless = prove(net(1.0, 1.0), question)
    data = read_json(harmless.text)
    data["network"] = network_digest(graph)
    return sealed(data, harmless.packed), harmless.packed, question


def refusals(graph: sg.Graph, folder: Path) -> list[str | None]:
    """What our checker, the second one and the question to the proven one say against it; None: nothing."""
    text, packed, question = forged(graph)
    sg.save(graph, folder / "net.json")

    def ask() -> Any:
        arithmetic, cases = read_certificate(text, packed, graph, question)
        return [CheckerInput(graph, case, arithmetic) for case in cases]

    def second_checker() -> Any:
        return second.checked(Network(*second.load(folder / "net.json")), text, packed)

    said: list[str | None] = []
    for reader in (lambda: check(text, packed, graph, question), second_checker, ask):
        try:
            reader()
            said.append(None)
        except (ReplayError, RefusedError) as error:
            said.append(str(error))
    return said


@pytest.mark.parametrize(("outer", "scale"), [(1.0, 2.0**100), (2.0**100, 1.0)])
def test_either_alone_is_fine(outer: float, scale: float, tmp_path: Path) -> None:
    assert refusals(net(outer, scale), tmp_path) == [None] * 3


def test_folded_at_padding_is_refused_by_all(tmp_path: Path) -> None:
    """2^100 * 2^100 is infinite, and ONNX Runtime, which folds it, multiplies 0 by it."""
    said = refusals(net(2.0**100, 2.0**100), tmp_path)
    assert all(text is not None and "overflow" in text for text in said), said
