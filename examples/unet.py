"""U-Net (Ronneberger et al., 2015), padded so that every pixel of the image gets a class.

Going down halves the image and doubles the channels; going up undoes it with transposed convolutions and joins what
was seen at the same size on the way down.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import specgrad as sg
from common import Tree, layer, report


def double_shapes(inputs: int, outputs: int) -> Tree:
    return (layer(outputs, inputs, 3, 3), layer(outputs, outputs, 3, 3))


def up_shapes(inputs: int, outputs: int) -> Tree:
    """A transposed convolution has its input channels first."""
    return {
        "up": {"weight": (inputs, outputs, 2, 2), "bias": (outputs,)},
        "merge": double_shapes(2 * outputs, outputs),
    }


def shapes(channels: int = 1, classes: int = 2, width: int = 64, depth: int = 4) -> Tree:
    widths = [width << level for level in range(depth + 1)]
    pairs = list(pairwise(widths))
    return {
        "down": tuple(double_shapes(i, o) for i, o in [(channels, width), *pairs[:-1]]),
        "bottom": double_shapes(*pairs[-1]),
        "up": tuple(up_shapes(o, i) for i, o in reversed(pairs)),
        "head": layer(classes, width, 1, 1),
    }


def double_conv(convs: Tree, x: Any) -> Any:
    for p in convs:
        x = sg.relu(sg.conv(p["weight"], p["bias"], x, padding=1))
    return x


def net(params: Tree, x: Any) -> Any:
    skips = []
    for i, convs in enumerate(params["down"]):
        with sg.scope(f"down.{i}"):
            skips.append(double_conv(convs, x))
            x = sg.max_pool(skips[-1], (2, 2))
    with sg.scope("bottom"):
        x = double_conv(params["bottom"], x)
    for i, p in enumerate(params["up"]):
        with sg.scope(f"up.{i}"):
            x = sg.conv_transpose(p["up"]["weight"], p["up"]["bias"], x, stride=2)
            x = double_conv(p["merge"], sg.concat([skips.pop(), x], axis=1))
    with sg.scope("head"):
        return sg.conv(params["head"]["weight"], params["head"]["bias"], x)


def main() -> None:
    report(net, shapes(), x=(1, 1, 256, 256), labels=(1, 256, 256))


if __name__ == "__main__":
    main()
