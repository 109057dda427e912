"""Draw the pictures of docs/guide/pictures.md and bounds.md: python tools/make_pictures.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "guide" / "pictures"


def network(name: str, *shape: int) -> Any:
    """A network of examples/."""
    import specgrad as sg

    if str(ROOT / "examples") not in sys.path:
        sys.path.insert(0, str(ROOT / "examples"))
    module = __import__(name)
    return sg.trace(module.net, module.shapes(), shape)


def small() -> Any:
    """Whole numbers for weights: its boxes over whole numbers are exact on any machine."""
    import numpy as np

    import specgrad as sg

    def weights(*shape: int) -> Any:
        return np.float32((np.arange(np.prod(shape)) * 7 % 11 - 5).reshape(shape))

    def net(x: Any) -> Any:
        with sg.scope("stem"):
            x = sg.max_pool(sg.relu(sg.conv(weights(4, 1, 3, 3), None, x)), (2, 2))
        with sg.scope("body"):
            x = sg.relu(sg.conv(weights(6, 4, 2, 2), None, x))
        with sg.scope("head"):
            x = sg.relu(sg.linear(weights(12, 24), None, sg.flatten(x, 1)))
            return sg.linear(weights(3, 12), None, x)

    return sg.trace(net, (1, 1, 8, 8))


def growth() -> Any:
    import numpy as np

    from specgrad.bounds import Box, ibp
    from specgrad.bounds.report.layer_widths import chart, layers_of
    from specgrad.html_page import alone

    graph, image = small(), np.float64(np.arange(64) % 9).reshape(1, 1, 8, 8)
    return alone(chart(layers_of(graph, ibp(graph, Box(image - 1, image + 1), deployed=False))))


def splits() -> Any:
    """A tree as a search records it: here 40 parts of four neurons and two pixels."""
    from specgrad.bounds.report.split_tree import drawing
    from specgrad.html_page import alone
    from specgrad.proof.base.split_tree import Split, Tree

    graph, tree, parts = small(), Tree(), [0]
    conv = next(i for i, node in enumerate(graph.nodes) if node.op.name == "conv")
    for k in range(39):
        part = parts.pop(k * 5 % len(parts) // 2)
        cut = Split(graph.input_positions[0], 9 + k % 2, 0.5 + k / 16) if k % 3 == 2 else Split(conv, 7 + k * k % 5)
        parts += tree.divide(part, cut)
    return alone(drawing(graph, tree))


def pictures() -> dict[str, Any]:
    import specgrad as sg

    return {
        "growth": growth(),
        "splits": splits(),
        "window": sg.show_window(size=7, kernel=3, stride=2, padding=1),
        "dilated": sg.show_window(size=8, kernel=3, stride=2, padding=1, dilation=2, ceil=True, operator="avg_pool"),
        "plane": sg.show_window(size=(5, 5), kernel=3, stride=2, padding=1),
        "resnet18": network("resnet18", 1, 3, 224, 224).draw(),
        "unet": network("unet", 1, 1, 64, 64).draw(),
        "lenet-vjp": sg.vjp(network("lenet", 1, 1, 28, 28)).draw(),
    }


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, picture in pictures().items():
        picture.save(FOLDER / f"{name}.svg")
