"""LeNet-5 (LeCun et al., 1998): tanh, average pooling, 61,706 parameters.

It takes 32x32 images, or 28x28 ones, which the first convolution then pads.
"""

from __future__ import annotations

from typing import Any

import specgrad as sg
from common import Tree, layer, report


def shapes(classes: int = 10) -> Tree:
    return {
        "conv1": layer(6, 1, 5, 5),
        "conv2": layer(16, 6, 5, 5),
        "fc1": layer(120, 16 * 5 * 5),
        "fc2": layer(84, 120),
        "fc3": layer(classes, 84),
    }


def features(p: Tree, x: Any, padding: int = 0) -> Any:
    """Convolution, tanh, and every second pixel of the mean."""
    x = sg.conv(p["weight"], p["bias"], x, padding=padding)
    return sg.avg_pool(sg.tanh(x), (2, 2))


def dense(p: Tree, x: Any) -> Any:
    return sg.linear(p["weight"], p["bias"], x)


def net(params: Tree, x: Any) -> Any:
    with sg.scope("conv1"):
        x = features(params["conv1"], x, padding=(32 - x.shape[-1]) // 2)
    with sg.scope("conv2"):
        x = features(params["conv2"], x)
    x = sg.flatten(x, 1)
    for name in ("fc1", "fc2"):
        with sg.scope(name):
            x = sg.tanh(dense(params[name], x))
    with sg.scope("fc3"):
        return dense(params["fc3"], x)


def main() -> None:
    report(net, shapes(), x=(1, 1, 28, 28), labels=(1,))


if __name__ == "__main__":
    main()
