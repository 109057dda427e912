"""Networks in plain PyTorch, with fixed seeds: what users bring. Sizes are parameters, so that tests can be small."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specgrad import Graph
from specgrad.interop import from_torch


class LeNet(nn.Module):
    """LeNet-5 with maxima and ReLU, for side x side images of one channel."""

    def __init__(self, side: int = 28) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * ((side // 2 - 4) // 2) ** 2, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = torch.flatten(x, 1)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))


# --- ResNet-18 --------------------------------------------------------------------------------------------------------


class BasicBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        short = x if self.downsample is None else self.downsample(x)
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y += short
        return self.relu(y)


class ResNet18(nn.Module):
    def __init__(self, width: int = 64, classes: int = 1000) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        widths = [width, width, 2 * width, 4 * width, 8 * width]
        for i in range(1, 5):
            first = BasicBlock(widths[i - 1], widths[i], 1 if i == 1 else 2)
            self.add_module(f"layer{i}", nn.Sequential(first, BasicBlock(widths[i], widths[i], 1)))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(8 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


# --- MobileNetV2 ------------------------------------------------------------------------------------------------------


def conv_bn(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return [conv, nn.BatchNorm2d(outputs)]


class InvertedResidual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, expand: int) -> None:
        super().__init__()
        hidden = inputs * expand
        layers = [] if expand == 1 else [*conv_bn(inputs, hidden, 1), nn.ReLU6(inplace=True)]
        layers += [*conv_bn(hidden, hidden, 3, stride, hidden), nn.ReLU6(inplace=True), *conv_bn(hidden, outputs, 1)]
        self.conv = nn.Sequential(*layers)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv(x) if self.residual else self.conv(x)


class MobileNetV2(nn.Module):
    """`settings` lists (expansion, channels, repeats, first stride), by default those of the paper."""

    PAPER = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))

    def __init__(self, settings: Any = PAPER, first: int = 32, last: int = 1280, classes: int = 1000) -> None:
        super().__init__()
        features: list[nn.Module] = [nn.Sequential(*conv_bn(3, first, 3, 2), nn.ReLU6(inplace=True))]
        inputs = first
        for expand, outputs, repeats, stride in settings:
            for i in range(repeats):
                features.append(InvertedResidual(inputs, outputs, stride if i == 0 else 1, expand))
                inputs = outputs
        features.append(nn.Sequential(*conv_bn(inputs, last, 1), nn.ReLU6(inplace=True)))
        self.features = nn.Sequential(*features)
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(last, classes))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x).mean((2, 3)))


# --- U-Net and a network on volumes -----------------------------------------------------------------------------------


def double_conv(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(), nn.Conv2d(outputs, outputs, 3, padding=1), nn.ReLU()
    )


class UNet(nn.Module):
    """Three scales, transposed convolutions on the way up, concatenated short cuts."""

    def __init__(self, width: int = 32, classes: int = 2) -> None:
        super().__init__()
        self.down1, self.down2 = double_conv(1, width), double_conv(width, 2 * width)
        self.bottom = double_conv(2 * width, 4 * width)
        self.pool = nn.MaxPool2d(2)
        self.up2, self.merge2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2), double_conv(4 * width, 2 * width)
        self.up1, self.merge1 = nn.ConvTranspose2d(2 * width, width, 3, 2, 1, 1), double_conv(2 * width, width)
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = self.down1(x)
        b = self.down2(self.pool(a))
        c = self.bottom(self.pool(b))
        b = self.merge2(torch.cat([self.up2(c), b], 1))
        a = self.merge1(torch.cat([self.up1(b), a], 1))
        return self.head(a)


class CNN3d(nn.Module):
    """Volumes: 3-D convolution, batch normalisation, max and average pooling, one transposed convolution."""

    def __init__(self, width: int = 8, classes: int = 4) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv3d(1, width, 3, padding=1), nn.BatchNorm3d(width), nn.LeakyReLU(0.125))
        self.pool = nn.MaxPool3d(2, padding=1)
        self.body = nn.Conv3d(width, 2 * width, 3, padding=2, dilation=2, groups=2)
        self.mean = nn.AvgPool3d(3, 2, 1, ceil_mode=True, count_include_pad=False)
        self.up = nn.ConvTranspose3d(2 * width, width, 2, 2)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.body(self.pool(self.stem(x))))
        x = self.up(self.mean(x))
        return self.head(F.adaptive_avg_pool3d(x, 1).flatten(1))


class OverriddenDivisor(nn.Module):
    """Sums of 2x2 cells as AvgPool2d(2, divisor_override=1): torch.onnx drops the divisor, so its file averages."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3, padding=1)
        self.sums = nn.AvgPool2d(2, divisor_override=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.sums(self.conv(x))


# --- with fixed seeds -------------------------------------------------------------------------------------------------


def _seeded(build: Callable[[], nn.Module], shape: tuple[int, ...], seed: int) -> tuple[nn.Module, Tensor]:
    """The network in inference form, with statistics of batch normalisation as training leaves them, and an input."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        module = build().eval()
        for part in module.modules():
            if isinstance(part, nn.BatchNorm2d | nn.BatchNorm3d):
                part.running_mean.normal_(0, 0.2)
                part.running_var.uniform_(0.5, 2)
        return module, torch.randn(shape)


SMALL_SETTINGS = ((1, 4, 1, 1), (6, 6, 2, 2), (6, 8, 2, 1))
SMALL: dict[str, Callable[[], tuple[nn.Module, Tensor]]] = {
    "lenet": lambda: _seeded(lambda: LeNet(16), (2, 1, 16, 16), 0),
    "resnet18": lambda: _seeded(lambda: ResNet18(4, 10), (1, 3, 32, 32), 1),
    "mobilenetv2": lambda: _seeded(lambda: MobileNetV2(SMALL_SETTINGS, 4, 16, 10), (1, 3, 32, 32), 2),
    "unet": lambda: _seeded(lambda: UNet(4), (1, 1, 16, 16), 3),
    "cnn3d": lambda: _seeded(lambda: CNN3d(4), (1, 1, 8, 8, 8), 4),
}
FULL: dict[str, Callable[[], tuple[nn.Module, Tensor]]] = {
    "lenet": lambda: _seeded(LeNet, (1, 1, 28, 28), 0),
    "resnet18": lambda: _seeded(ResNet18, (1, 3, 224, 224), 1),
    "mobilenetv2": lambda: _seeded(MobileNetV2, (1, 3, 224, 224), 2),
    "unet": lambda: _seeded(UNet, (1, 1, 128, 128), 3),
    "cnn3d": lambda: _seeded(CNN3d, (1, 1, 32, 32, 32), 4),
}


def overridden_divisor() -> tuple[nn.Module, Tensor]:
    return _seeded(OverriddenDivisor, (1, 1, 6, 6), 5)


# --- as graphs and as ONNX --------------------------------------------------------------------------------------------


@cache
def _imported(name: str) -> tuple[Graph, nn.Module, Tensor]:
    module, x = SMALL[name]()
    return from_torch(module, x), module, x


def imported(name: str, dtype: torch.dtype = torch.float32) -> tuple[Graph, nn.Module, Tensor]:
    """A small network as a graph, the module itself (a copy), and an input; float64 holds the same numbers."""
    graph, module, x = _imported(name)
    return graph, copy.deepcopy(module).to(dtype), x.to(dtype)


def exported_onnx(module: nn.Module, x: Tensor, *, optimize: bool = True) -> Any:
    """The ModelProto that torch.onnx writes. With `optimize` it folds batch normalisation into rounded weights."""
    with warnings.catch_warnings():  # torch.export warns of its own use of torch.utils._pytree
        warnings.simplefilter("ignore", FutureWarning)
        program = torch.onnx.export(module, (x,), dynamo=True, verbose=False, optimize=optimize)
    return program.model_proto
