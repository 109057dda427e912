"""Public architectures with random weights of a fixed seed: torchvision's and timm's definitions, and two of our own.

Small images and 10 classes (`build`), or the size they were made for (`full_size`, of which benchmarks/zoo_files.py
makes files).
Neither package's compiled part is needed: pip install --no-deps torchvision==0.28.0 timm pyyaml
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "interop"))

Shape = tuple[int, ...]
CLASSES = 10


def _without_kernels() -> None:
    """torchvision registers derivatives of its compiled operators when imported; these two modules stand for that."""
    for name in ("_meta_registrations", "_autograd_registrations"):
        sys.modules.setdefault(f"torchvision.{name}", ModuleType(f"torchvision.{name}"))


def _torchvision(name: str, **options: Any) -> nn.Module:
    _without_kernels()
    import torchvision

    options = {"num_classes": CLASSES} | options
    module: nn.Module = torchvision.models.get_model(name, weights=None, **options)
    return module


def _pooled(name: str) -> nn.Module:
    """AlexNet and VGG end in a fixed 6x6 or 7x7 map, for images of 224, and 4096 hidden units: here 1x1 and 256."""
    module = _torchvision(name)
    first, second, last = (i for i, part in enumerate(module.classifier) if isinstance(part, nn.Linear))
    channels = module.classifier[first].in_features // module.avgpool.output_size[0] ** 2
    module.avgpool = nn.AdaptiveAvgPool2d(1)
    for i, sizes in ((first, (channels, 256)), (second, (256, 256)), (last, (256, CLASSES))):
        module.classifier[i] = nn.Linear(*sizes)
    return module


def _small_vit() -> nn.Module:
    """The sizes of ViT-Ti."""
    _without_kernels()
    from torchvision.models import VisionTransformer

    return VisionTransformer(64, 16, num_layers=12, num_heads=3, hidden_dim=192, mlp_dim=768, num_classes=CLASSES)


def _small_maxvit() -> nn.Module:
    """maxvit_t with windows of 2x2 in place of 7x7, for images of 64 in place of 224."""
    _without_kernels()
    from torchvision.models import MaxVit

    return MaxVit((64, 64), 64, 2, [64, 128, 256, 512], [2, 2, 5, 2], 32, 0.2, num_classes=CLASSES)


def _segmentation(name: str) -> nn.Module:
    return _FirstOutput(_torchvision(name, weights_backbone=None, aux_loss=None))


def _timm(name: str, **options: Any) -> nn.Module:
    _without_kernels()
    import timm

    module: nn.Module = timm.create_model(name, pretrained=False, num_classes=CLASSES, **options)
    return module


class _FirstOutput(nn.Module):
    """torchvision's segmentation models return a dictionary."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.model(x)["out"]
        return y


# --- our own ----------------------------------------------------------------------------------------------------------


def _unet() -> nn.Module:
    import models

    return models.UNet()


class _Conv(nn.Sequential):
    def __init__(self, inputs: int, outputs: int, kernel: int = 1, stride: int = 1) -> None:
        conv = nn.Conv2d(inputs, outputs, kernel, stride, (kernel - 1) // 2, bias=False)
        super().__init__(conv, nn.BatchNorm2d(outputs), nn.SiLU())


class _Block(nn.Module):
    """Two branches, one of them a residual pair, concatenated (YOLO's CSP block)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        half = channels // 2
        self.one, self.two, self.last = _Conv(channels, half), _Conv(channels, half), _Conv(channels, channels)
        self.pair = nn.Sequential(_Conv(half, half), _Conv(half, half, 3))

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.one(x), self.two(x)
        y: Tensor = self.last(torch.cat([a + self.pair(a), b], 1))
        return y


class _Pyramid(nn.Module):
    """Maxima of growing windows beside each other (YOLO's SPPF)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.last = _Conv(channels, channels // 2), _Conv(2 * channels, channels)
        self.pool = nn.MaxPool2d(5, 1, 2)

    def forward(self, x: Tensor) -> Tensor:
        levels = [self.first(x)]
        for _ in range(3):
            levels.append(self.pool(levels[-1]))
        y: Tensor = self.last(torch.cat(levels, 1))
        return y


class Detector(nn.Module):
    """A detector in the manner of YOLOv5: two scales, and a head that turns its maps into boxes and scores."""

    ANCHORS = (((1.25, 1.625), (2.0, 3.75), (4.125, 2.875)), ((1.875, 3.8125), (3.875, 2.8125), (3.6875, 7.4375)))

    def __init__(self, width: int = 16, classes: int = 8) -> None:
        super().__init__()
        w = width
        self.stem = nn.Sequential(_Conv(3, w, 6, 2), _Conv(w, 2 * w, 3, 2), _Block(2 * w), _Conv(2 * w, 4 * w, 3, 2))
        self.fine = _Block(4 * w)
        self.coarse = nn.Sequential(_Conv(4 * w, 8 * w, 3, 2), _Block(8 * w), _Pyramid(8 * w))
        self.up, self.lateral = nn.Upsample(scale_factor=2, mode="nearest"), _Conv(8 * w, 4 * w)
        self.merge = nn.Sequential(_Conv(8 * w, 4 * w), _Block(4 * w))
        self.values = 5 + classes
        self.heads = nn.ModuleList([nn.Conv2d(4 * w, 3 * self.values, 1), nn.Conv2d(8 * w, 3 * self.values, 1)])
        self.register_buffer("anchors", torch.tensor(self.ANCHORS))

    def forward(self, x: Tensor) -> Tensor:
        fine = self.fine(self.stem(x))
        coarse = self.coarse(fine)
        fine = self.merge(torch.cat([self.up(self.lateral(coarse)), fine], 1))
        return torch.cat([self._boxes(i, self.heads[i](y)) for i, y in enumerate((fine, coarse))], 1)

    def _boxes(self, scale: int, maps: Tensor) -> Tensor:
        n, _, h, w = maps.shape
        y = maps.view(n, 3, self.values, h, w).permute(0, 1, 3, 4, 2).sigmoid()
        rows, columns = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        grid = torch.stack((columns, rows), 2).to(y.dtype).view(1, 1, h, w, 2)
        middle, extent, score = y.split((2, 2, self.values - 4), 4)
        middle = (middle * 2 - 0.5 + grid) * (8 << scale)
        extent = (extent * 2) ** 2 * self.anchors[scale].view(1, 3, 1, 1, 2) * (8 << scale)
        return torch.cat((middle, extent, score), 4).view(n, -1, self.values)


# --- the list ---------------------------------------------------------------------------------------------------------

IMAGE, LARGER, VOLUME = (1, 3, 64, 64), (1, 3, 96, 96), (1, 3, 4, 32, 32)


def _tv(name: str, shape: Shape = IMAGE, **options: Any) -> tuple[Callable[[], nn.Module], Shape]:
    return partial(_torchvision, name, **options), shape


def _ti(name: str, shape: Shape = IMAGE, **options: Any) -> tuple[Callable[[], nn.Module], Shape]:
    return partial(_timm, name, **options), shape


ZOO: dict[str, tuple[Callable[[], nn.Module], Shape]] = {
    "alexnet": (partial(_pooled, "alexnet"), IMAGE),
    "vgg11_bn": (partial(_pooled, "vgg11_bn"), IMAGE),
    "squeezenet1_1": _tv("squeezenet1_1"),
    "resnet18": _tv("resnet18"),
    "resnet50": _tv("resnet50"),
    "resnext50_32x4d": _tv("resnext50_32x4d"),
    "densenet121": _tv("densenet121"),
    "googlenet": _tv("googlenet", aux_logits=False, init_weights=False),
    "inception_v3": _tv("inception_v3", LARGER, aux_logits=False, init_weights=False),
    "shufflenet_v2_x1_0": _tv("shufflenet_v2_x1_0"),
    "mobilenet_v2": _tv("mobilenet_v2"),
    "mobilenet_v3_small": _tv("mobilenet_v3_small"),
    "mobilenet_v3_large": _tv("mobilenet_v3_large"),
    "mnasnet1_0": _tv("mnasnet1_0"),
    "efficientnet_b0": _tv("efficientnet_b0"),
    "efficientnet_v2_s": _tv("efficientnet_v2_s"),
    "regnet_x_400mf": _tv("regnet_x_400mf"),
    "regnet_y_400mf": _tv("regnet_y_400mf"),
    "convnext_tiny": _tv("convnext_tiny"),
    "vit_ti_16": (_small_vit, IMAGE),
    "swin_t": _tv("swin_t"),
    "swin_v2_t": _tv("swin_v2_t"),
    "maxvit_t": (_small_maxvit, IMAGE),
    "deeplabv3_mobilenet_v3_large": (partial(_segmentation, "deeplabv3_mobilenet_v3_large"), IMAGE),
    "fcn_resnet50": (partial(_segmentation, "fcn_resnet50"), IMAGE),
    "lraspp_mobilenet_v3_large": (partial(_segmentation, "lraspp_mobilenet_v3_large"), IMAGE),
    "r3d_18": _tv("r3d_18", VOLUME),
    "mc3_18": _tv("mc3_18", VOLUME),
    "r2plus1d_18": _tv("r2plus1d_18", VOLUME),
    "vit_tiny (timm)": _ti("vit_tiny_patch16_224", img_size=64),
    "mixer_s32 (timm)": _ti("mixer_s32_224", img_size=64),
    "resnest14d (timm)": _ti("resnest14d"),
    "ghostnet_100 (timm)": _ti("ghostnet_100"),
    "mobilevit_xxs (timm)": _ti("mobilevit_xxs"),
    "poolformer_s12 (timm)": _ti("poolformer_s12"),
    "repvgg_a0 (timm)": _ti("repvgg_a0"),
    "U-Net": (_unet, (1, 1, 32, 32)),
    "detector": (Detector, IMAGE),
}


HALF, INT8 = " float16", " int8"
ROWS = (*ZOO, *(n + HALF for n in ("resnet18", "mobilenet_v2", "vit_ti_16")))
ROWS += tuple(n + INT8 for n in ("resnet18", "mobilenet_v2", "squeezenet1_1"))


def build(name: str) -> tuple[nn.Module, Tensor]:
    """The network in inference form, and an input; half of both for a half version."""
    module, x = _built(name.removesuffix(HALF).removesuffix(INT8))
    return (module.half(), x.half()) if name.endswith(HALF) else (module, x)


def variant(name: str, export: Callable[[nn.Module, Tensor], Any], module: nn.Module, x: Tensor) -> Any:
    """What the exporter gives; quantised by ONNX Runtime's static quantisation (QDQ) for an int8 version."""
    import onnx

    source = export(module, x)
    if not name.endswith(INT8):
        return source
    return quantised(source, {onnx.load_from_string(source).graph.input[0].name: x.numpy()})


def quantised(model: bytes, inputs: dict[str, Any]) -> bytes:
    """The file with QuantizeLinear and DequantizeLinear around its layers, by ONNX Runtime, ranges from one input."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left = [inputs]

        def get_next(self) -> Any:
            return self.left.pop() if self.left else None

    with TemporaryDirectory() as folder:
        path, target = Path(folder) / "model.onnx", Path(folder) / "int8.onnx"
        path.write_bytes(model)
        quantize_static(path, target, Reader(), quant_format=QuantFormat.QDQ)
        return target.read_bytes()


def _built(name: str) -> tuple[nn.Module, Tensor]:
    make, shape = ZOO[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = make().eval()
        _fill_zeros(module)
        _settle(module, torch.randn(8, *shape[1:]))
        return module, torch.randn(shape)


def _fill_zeros(module: nn.Module) -> None:
    """Heads and gates that begin at zero would hide everything before them."""
    with torch.no_grad():
        for p in module.parameters():
            if p.dim() > 1 and not p.any():
                p.normal_(std=0.05)


def _settle(module: nn.Module, x: Tensor) -> None:
    """Statistics of batch normalisation are those of one batch of noise: so activations keep their size."""
    norms = [part for part in module.modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        norm.train().momentum = 1.0
    with torch.no_grad():
        if norms:
            module(x)
    module.eval()


# --- at full size -----------------------------------------------------------------------------------------------------


def full_size(name: str, images: Tensor) -> nn.Module:
    """One of torchvision's with all its classes, in inference form, its statistics those of the images.

    A segmenter gives its classes per pixel; a detector gives what its head says per anchor, before boxes are chosen.
    """
    with torch.random.fork_rng():
        torch.manual_seed(0)
        if name.startswith("ssd"):
            module: nn.Module = _Heads(_torchvision(name, num_classes=91, weights_backbone=None))
        elif name.startswith(("deeplab", "fcn", "lraspp")):
            module = _FirstOutput(_torchvision(name, num_classes=21, weights_backbone=None))
        else:
            module = _torchvision(name, num_classes=1000)
        module.eval()
        _fill_zeros(module)
        with torch.no_grad():
            for part, p in module.named_parameters():
                if part.endswith("layer_scale"):  # begins at 1e-6, which would hide ConvNeXt's blocks
                    p.fill_(0.1)
        _settle(module, images)
        return module


class _Heads(nn.Module):
    """torchvision's SSD without resizing before it and the choice of boxes after it: offsets and scores per anchor."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.backbone, self.head = model.backbone, model.head

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        found = self.head(list(self.backbone(x).values()))
        return found["bbox_regression"], found["cls_logits"]


class Bfloat16(nn.Module):
    """A network that computes in bfloat16, between inputs and outputs in float32."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model.bfloat16()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.model(x.bfloat16())
        return y.float()
