"""A 3-D CNN for video or volumes: the convolutions of C3D (Tran et al., 2015), a global average, one linear layer.

Nothing here says "3-D" but the kernels: convolution and pooling take their rank from them.
"""

from __future__ import annotations

from typing import Any

import specgrad as sg
from common import Tree, layer, report

STAGES = ((1,), (2,), (4, 4), (8, 8), (8, 8))  # widths of the convolutions between two poolings, in units


def shapes(channels: int = 3, classes: int = 101, width: int = 64) -> Tree:
    stages = []
    for stage in STAGES:
        convs = []
        for units in stage:
            convs.append(layer(units * width, channels, 3, 3, 3))
            channels = units * width
        stages.append(tuple(convs))
    return {"stages": tuple(stages), "fc": layer(classes, channels)}


def net(params: Tree, x: Any) -> Any:
    for i, convs in enumerate(params["stages"]):
        with sg.scope(f"stages.{i}"):
            for p in convs:
                x = sg.relu(sg.conv(p["weight"], p["bias"], x, padding=1))
            if i + 1 < len(params["stages"]):
                x = sg.max_pool(x, (2, 2, 2) if i else (1, 2, 2))  # keep time fine at first, as C3D does
    with sg.scope("head"):
        x = sg.global_avg_pool(x, rank=3, keepdims=False)
        return sg.linear(params["fc"]["weight"], params["fc"]["bias"], x)


def main() -> None:
    report(net, shapes(), x=(1, 3, 16, 112, 112), labels=(1,))


if __name__ == "__main__":
    main()
