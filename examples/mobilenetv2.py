"""MobileNetV2 (Sandler et al., 2018) for 224x224 images: 3,504,872 learnable parameters, as in torchvision.

An inverted residual widens its input by a 1x1 convolution, filters every channel on its own, and narrows it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import specgrad as sg
from common import Tree, layer, norm, report

# expansion, channels, blocks, stride of the first block
STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def blocks() -> Iterator[tuple[int, int, int]]:
    """(expansion, channels, stride) of every block, in order."""
    for expansion, channels, repeats, stride in STAGES:
        for i in range(repeats):
            yield expansion, channels, 1 if i else stride


def conv_bn_shapes(outputs: int, inputs: int, kernel: int) -> Tree:
    return {"conv": {"weight": (outputs, inputs, kernel, kernel)}, "bn": norm(outputs)}


def block_shapes(inputs: int, outputs: int, expansion: int) -> Tree:
    hidden = inputs * expansion
    expand = {"expand": conv_bn_shapes(hidden, inputs, 1)} if expansion > 1 else {}
    return {
        **expand,
        "depthwise": conv_bn_shapes(hidden, 1, 3),
        "project": conv_bn_shapes(outputs, hidden, 1),
    }


def shapes(classes: int = 1000, width: int = 32) -> Tree:
    """width is that of the stem; all others follow in proportion."""
    inputs, last = width, 1280 * width // 32
    residuals = []
    for expansion, channels, _ in blocks():
        outputs = channels * width // 32
        residuals.append(block_shapes(inputs, outputs, expansion))
        inputs = outputs
    return {
        "stem": conv_bn_shapes(width, 3, 3),
        "blocks": tuple(residuals),
        "head": conv_bn_shapes(last, inputs, 1),
        "classifier": layer(classes, last),
    }


def conv_bn(params: Tree, name: str, x: Any, **options: int) -> Any:
    """Convolution without bias, centred on its pixel; then batch normalisation."""
    w, bn = params[name]["conv"]["weight"], params[name]["bn"]
    with sg.scope(name):
        x = sg.conv(w, None, x, padding=w.shape[-1] // 2, **options)
        return sg.batch_norm(x, bn["running_mean"], bn["running_var"], bn["weight"], bn["bias"])


def conv_bn_relu6(params: Tree, name: str, x: Any, **options: int) -> Any:
    x = conv_bn(params, name, x, **options)
    with sg.scope(name):
        return sg.relu6(x)


def inverted_residual(p: Tree, x: Any, stride: int) -> Any:
    y = conv_bn_relu6(p, "expand", x) if "expand" in p else x
    y = conv_bn_relu6(p, "depthwise", y, stride=stride, groups=y.shape[1])  # one filter per channel
    y = conv_bn(p, "project", y)  # no activation: a narrow layer cannot afford to lose half its values
    return x + y if x.shape == y.shape else y


def net(params: Tree, x: Any) -> Any:
    x = conv_bn_relu6(params, "stem", x, stride=2)
    for i, (p, (_, _, stride)) in enumerate(zip(params["blocks"], blocks(), strict=True)):
        with sg.scope(f"blocks.{i}"):
            x = inverted_residual(p, x, stride)
    x = conv_bn_relu6(params, "head", x)
    with sg.scope("classifier"):
        x = sg.global_avg_pool(x, rank=2, keepdims=False)
        return sg.linear(params["classifier"]["weight"], params["classifier"]["bias"], x)


def main() -> None:
    report(net, shapes(), x=(1, 3, 224, 224), labels=(1,))


if __name__ == "__main__":
    main()
