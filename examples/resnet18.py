"""ResNet-18 (He et al., 2015) for 224x224 images: 11,689,512 learnable parameters.

Structure and names are torchvision's, so the dotted path of a parameter is its key in the state_dict there.
"""

from __future__ import annotations

from typing import Any

import specgrad as sg
from common import Tree, layer, norm, report

STAGES = ("layer1", "layer2", "layer3", "layer4")


def conv_shape(outputs: int, inputs: int, kernel: int) -> Tree:
    return {"weight": (outputs, inputs, kernel, kernel)}


def block_shapes(inputs: int, outputs: int) -> Tree:
    block = {
        "conv1": conv_shape(outputs, inputs, 3),
        "bn1": norm(outputs),
        "conv2": conv_shape(outputs, outputs, 3),
        "bn2": norm(outputs),
    }
    if inputs != outputs:
        block["downsample"] = (conv_shape(outputs, inputs, 1), norm(outputs))
    return block


def shapes(classes: int = 1000, width: int = 64) -> Tree:
    params = {"conv1": conv_shape(width, 3, 7), "bn1": norm(width)}
    inputs = width
    for i, stage in enumerate(STAGES):
        outputs = width << i
        params[stage] = (block_shapes(inputs, outputs), block_shapes(outputs, outputs))
        inputs = outputs
    return {**params, "fc": layer(classes, inputs)}


def conv_bn(conv: Tree, bn: Tree, x: Any, stride: int = 1) -> Any:
    """Convolution without bias, centred on its pixel; then batch normalisation."""
    w = conv["weight"]
    x = sg.conv(w, None, x, stride=stride, padding=w.shape[-1] // 2)
    return sg.batch_norm(x, bn["running_mean"], bn["running_var"], bn["weight"], bn["bias"])


def basic_block(p: Tree, x: Any, stride: int) -> Any:
    y = sg.relu(conv_bn(p["conv1"], p["bn1"], x, stride))
    y = conv_bn(p["conv2"], p["bn2"], y)
    if "downsample" in p:
        with sg.scope("downsample"):
            x = conv_bn(*p["downsample"], x, stride)
    return sg.relu(y + x)


def net(params: Tree, x: Any) -> Any:
    with sg.scope("stem"):
        x = sg.relu(conv_bn(params["conv1"], params["bn1"], x, stride=2))
        x = sg.max_pool(x, (3, 3), stride=2, padding=1)
    for stage in STAGES:
        for i, block in enumerate(params[stage]):
            with sg.scope(f"{stage}.{i}"):
                x = basic_block(block, x, stride=2 if "downsample" in block else 1)
    with sg.scope("head"):
        x = sg.global_avg_pool(x, rank=2, keepdims=False)
        return sg.linear(params["fc"]["weight"], params["fc"]["bias"], x)


def main() -> None:
    report(net, shapes(), x=(1, 3, 224, 224), labels=(1,))


if __name__ == "__main__":
    main()
