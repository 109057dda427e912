"""The 100 operations of KernelBench, level 1 (arXiv 2502.10517), by its numbers and sizes: functions of tensors.

What a module holds is an argument here. Inputs are normal numbers, weights are uniform as PyTorch draws them. The
reduced sizes are for many runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

BLOCK = 67_108_859  # a prime: longer inputs repeat so many numbers, in step with no tile
Shape = tuple[int, ...]
Function = Callable[..., Tensor]


@dataclass(frozen=True)
class Drawn:
    """An input: its shape, how it is drawn, and the axis along which it may be cut (None: it belongs to no batch)."""

    shape: Shape
    how: str = "normal"
    batch: int | None = None

    @property
    def bytes(self) -> int:
        """Return its size in memory, as float32, int64 or bool."""
        return math.prod(self.shape) * {"mask": 1, "classes": 8}.get(self.how, 4)


@dataclass(frozen=True)
class Operation:
    """One operation at the sizes of its inputs.

    number, name   in KernelBench
    family         "product", "cell", "norm", "pool", "reduction", "conv", "scan" or "loss"
    function       of tensors
    inputs         in order
    taps           attributes of a convolution
    """

    number: int
    name: str
    family: str
    function: Function
    inputs: tuple[Drawn, ...]
    taps: Conv | None = None

    @property
    def batch(self) -> int:
        """Return the length of the axis that may be cut; 1 without one."""
        return next((d.shape[d.batch] for d in self.inputs if d.batch is not None), 1)

    def with_batch(self, count: int) -> Operation:
        """Return the operation on the first `count` items of its batch."""
        return replace(self, inputs=tuple(d if d.batch is None else _cut(d, count) for d in self.inputs))

    def result(self) -> Tensor:
        """Return what the result looks like, without its numbers."""
        with torch.device("meta"):
            return self.function(*(torch.empty(d.shape, dtype=_type(d)) for d in self.inputs))

    def draw(self, seed: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
        """Return inputs of this type, drawn by a seed."""
        given = [_draw(d, torch.Generator().manual_seed(1000 * seed + k)) for k, d in enumerate(self.inputs)]
        return [t.to(dtype) if t.is_floating_point() else t for t in given]


def _cut(drawn: Drawn, count: int) -> Drawn:
    assert drawn.batch is not None
    shape = list(drawn.shape)
    shape[drawn.batch] = count
    return replace(drawn, shape=tuple(shape))


def _type(drawn: Drawn) -> torch.dtype:
    return {"mask": torch.bool, "classes": torch.int64}.get(drawn.how, torch.float32)


def _draw(drawn: Drawn, random: torch.Generator) -> Tensor:
    shape, how = drawn.shape, drawn.how
    if how == "classes":
        return torch.randint(0, 8, shape, generator=random)
    if how == "mask":
        return torch.rand(shape, generator=random) < 0.5
    if how.startswith("weight"):
        bound = 1 / math.sqrt(int(how.split()[1]))
        return torch.empty(shape).uniform_(-bound, bound, generator=random)
    count = math.prod(shape)
    block = torch.randn(min(count, BLOCK), generator=random)
    flat = block if count <= BLOCK else torch.empty(count)
    for start in range(0, count if count > BLOCK else 0, BLOCK):
        flat[start : start + BLOCK] = block[: count - start]
    x = flat.view(shape)
    finish: dict[str, Callable[[Tensor], Tensor]] = {
        "signs": lambda v: v.sign(),
        "shares": lambda v: v.softmax(-1),
        "symmetric": lambda v: (v + v.mT) / 2,
        "upper": torch.triu,
        "lower": torch.tril,
        "positive": lambda v: v.abs() + 0.1,
    }
    return finish.get(how, lambda v: v)(x)


# --- sizes ------------------------------------------------------------------------------------------------------------


def _small(n: int) -> int:
    """Return a reduced size: equal sizes stay equal, and 8 divides it."""
    return n if n <= 16 else 8 + 8 * (n % 3)


class Sizes:
    """Makes operations at full or at reduced sizes."""

    def __init__(self, reduced: bool) -> None:
        self.reduced = reduced

    def __call__(self, *shape: int, how: str = "normal", batch: int | None = None) -> Drawn:
        return Drawn(tuple(map(_small, shape)) if self.reduced else shape, how, batch)

    def rows(self, *shape: int, how: str = "normal") -> Drawn:
        """Return an input that may be cut along its first axis."""
        return self(*shape, how=how, batch=0)


# --- families ---------------------------------------------------------------------------------------------------------


def _products(size: Sizes) -> list[Operation]:
    m, mm = size.rows, torch.matmul
    einsum = lambda x, w: torch.einsum("bijl,lk->bijk", x, w)
    four = m(4096, 4096)
    made: list[tuple[str, Function, tuple[Drawn, ...]]] = [
        ("square matrices", mm, (four, size(4096, 4096))),
        ("matrices", mm, (m(2048, 8192), size(8192, 4096))),
        ("batches of matrices", torch.bmm, (m(128, 512, 1024), m(128, 1024, 2048))),
        ("matrix and vector", mm, (m(2048, 1048576), size(1048576, 1))),
        ("matrix and number", lambda x: x * 3.14, (m(65536, 16384),)),
        ("many terms", mm, (m(256, 524288), size(524288, 256))),
        ("few terms", mm, (m(32768, 64), size(64, 32768))),
        ("irregular sizes", mm, (m(8205, 2949), size(2949, 5921))),
        ("tall and skinny", mm, (m(32768, 32), size(32, 32768))),
        ("3 axes", mm, (m(16, 1024, 2048), size(2048, 768))),
        ("4 axes", einsum, (m(8, 256, 512, 256), size(256, 768))),
        ("diagonal matrix", lambda d, x: torch.diag(d) @ x, (size(4096), size(4096, 4096))),
        ("symmetric matrices", mm, (size(4096, 4096, how="symmetric"), size(4096, 4096, how="symmetric"))),
        ("upper triangles", lambda a, b: torch.triu(a @ b), (size(4096, 4096, how="upper"),) * 2),
        ("lower triangles", lambda a, b: torch.tril(a @ b), (size(4096, 4096, how="lower"),) * 2),
        ("first transposed", lambda a, b: a.T @ b, (size(8192, 2048, batch=1), size(8192, 4096))),
        ("second transposed", lambda a, b: a @ b.T, (m(2048, 8192), size(4096, 8192))),
        ("both transposed", lambda a, b: a.T @ b.T, (size(8192, 2048, batch=1), size(4096, 8192))),
    ]
    return [Operation(k, name, "product", f, inputs) for k, (name, f, inputs) in enumerate(made, 1)]


def _gelu_of_tanh(v: Tensor) -> Tensor:
    return 0.5 * v * (1 + torch.tanh((2 / math.pi) ** 0.5 * (v + 0.044715 * torch.pow(v, 3))))


def _cells(size: Sizes) -> list[Operation]:
    x = size.rows(4096, 393216)
    made: list[tuple[str, Function]] = [
        ("relu", torch.relu), ("leaky_relu", lambda v: F.leaky_relu(v, 0.01)), ("sigmoid", torch.sigmoid),
        ("tanh", torch.tanh), ("softmax", lambda v: torch.softmax(v, 1)),
        ("log_softmax", lambda v: torch.log_softmax(v, 1)), ("swish", lambda v: v * torch.sigmoid(v)),
        ("gelu", F.gelu), ("selu", torch.selu), ("hardsigmoid", F.hardsigmoid), ("softplus", F.softplus),
        ("softsign", F.softsign), ("elu", lambda v: F.elu(v, 1.0)), ("hardtanh", lambda v: F.hardtanh(v, -1.0, 1.0)),
    ]  # fmt: skip
    kinds = {"softmax": "norm", "log_softmax": "norm"}
    answer = [Operation(k, name, kinds.get(name, "cell"), f, (x,)) for k, (name, f) in enumerate(made, 19)]
    return [*answer, Operation(88, "gelu of tanh", "cell", _gelu_of_tanh, (size.rows(8192, 8192),))]


def _norms(size: Sizes) -> list[Operation]:
    planes, table = size.rows(112, 64, 512, 512), size.rows(32768, 65535)
    of, at = size(64, how="positive"), size(64)
    items = size.rows(16, 64, 256, 256)
    made: list[tuple[str, Function, tuple[Drawn, ...]]] = [
        ("batch norm", lambda v, g, b: F.batch_norm(v, None, None, g, b, True), (size.rows(64, 64, 512, 512), of, at)),
        ("instance norm", F.instance_norm, (planes,)),
        ("group norm", lambda v, g, b: F.group_norm(v, 8, g, b), (planes, of, at)),
        ("rms norm", lambda v: v / torch.sqrt(torch.mean(v**2, dim=1, keepdim=True) + 1e-5), (planes,)),
        ("Frobenius norm", lambda v: v / torch.norm(v, p="fro"), (planes,)),
        ("l1 norm", lambda v: v / torch.mean(torch.abs(v), dim=1, keepdim=True), (table,)),
        ("l2 norm", lambda v: v / torch.norm(v, p=2, dim=1, keepdim=True), (table,)),
        ("layer norm", lambda v, g, b: F.layer_norm(v, v.shape[1:], g, b), (
            items, replace(items, shape=items.shape[1:], how="positive", batch=None),
            replace(items, shape=items.shape[1:], batch=None),
        )),
    ]  # fmt: skip
    return [Operation(k, name, "norm", f, inputs) for k, (name, f, inputs) in enumerate(made, 33)]


def _reductions(size: Sizes) -> list[Operation]:
    x = size.rows(128, 4096, 4095)
    pools: list[tuple[int, str, Function, Drawn]] = [
        (41, "max pool 1d", lambda v: F.max_pool1d(v, 8, 1, 4, 3), size.rows(64, 192, 65536)),
        (42, "max pool 2d", lambda v: F.max_pool2d(v, 4, 1, 1, 1), size.rows(32, 64, 512, 512)),
        (43, "max pool 3d", lambda v: F.max_pool3d(v, 3, 2, 1, 3), size.rows(16, 32, 128, 128, 128)),
        (44, "mean pool 1d", lambda v: F.avg_pool1d(v, 8, 1, 4), size.rows(64, 128, 65536)),
        (45, "mean pool 2d", lambda v: F.avg_pool2d(v, 11), size.rows(16, 64, 2048, 2048)),
        (46, "mean pool 3d", lambda v: F.avg_pool3d(v, 3, 2, 1), size.rows(16, 32, 128, 128, 256)),
    ]
    made: list[tuple[int, str, Function]] = [
        (47, "sum", lambda v: torch.sum(v, dim=1, keepdim=True)), (48, "mean", lambda v: torch.mean(v, dim=1)),
        (49, "max", lambda v: torch.max(v, dim=1)[0]), (51, "argmax", lambda v: torch.argmax(v, dim=1)),
        (52, "argmin", lambda v: torch.argmin(v, dim=1)), (53, "min", lambda v: torch.min(v, dim=1)[0]),
    ]  # fmt: skip
    answer = [Operation(k, name, "pool", f, (drawn,)) for k, name, f, drawn in pools]
    return [*answer, *(Operation(k, name, "reduction", f, (x,)) for k, name, f in made)]


@dataclass(frozen=True)
class Conv:
    """Attributes of a convolution: channels in and out, and one number per axis, or one for all."""

    cin: int
    cout: int
    kernel: Shape
    stride: int | Shape = 1
    padding: int | Shape = 0
    dilation: int | Shape = 1
    groups: int = 1
    extra: int = 0
    transposed: bool = False

    def function(self) -> Function:
        """Return the convolution of tensors x and w, and a bias."""
        n = len(self.kernel)
        if self.transposed:
            f = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[n - 1]
            given = (self.stride, self.padding, self.extra, self.groups, self.dilation)
        else:
            f = (F.conv1d, F.conv2d, F.conv3d)[n - 1]
            given = (self.stride, self.padding, self.dilation, self.groups)
        return lambda x, w, b=None: f(x, w, b, *given)

    def weight(self) -> Drawn:
        """Return its factors as an input."""
        ends = (self.cin, self.cout) if self.transposed else (self.cout, self.cin)
        fan = ends[1] // self.groups * math.prod(self.kernel)
        return Drawn((ends[0], ends[1] // self.groups, *self.kernel), f"weight {fan}")

    def reduced(self) -> Conv:
        """Return the same with few channels."""
        if self.groups > 1:
            depthwise, groups = self.groups == self.cin, min(self.groups, 4)
            return replace(self, cin=groups if depthwise else 8, cout=groups if depthwise else 8, groups=groups)
        return replace(self, cin=min(self.cin, 4), cout=min(self.cout, 5))

    def reach(self) -> Shape:
        """Return how many positions one cell reads along each axis."""
        apart = self.dilation if isinstance(self.dilation, tuple) else (self.dilation,) * len(self.kernel)
        return tuple(e * (k - 1) + 1 for e, k in zip(apart, self.kernel, strict=True))


def _plain(n: int, cin: int, cout: int, kernel: int | Shape, **given: int | Shape) -> Conv:
    return Conv(cin, cout, kernel if isinstance(kernel, tuple) else (kernel,) * n, **given)  # type: ignore[arg-type]


def _turned(n: int, cin: int, cout: int, kernel: int | Shape, **given: int | Shape) -> Conv:
    return replace(_plain(n, cin, cout, kernel, **given), transposed=True)


CONVOLUTIONS: dict[int, tuple[Conv, Shape]] = {
    54: (_plain(3, 3, 64, 3), (16, 64, 64, 64)),
    55: (_plain(2, 64, 128, 3), (8, 512, 1024)),
    56: (_plain(2, 64, 128, (5, 7)), (8, 512, 256)),
    57: (_turned(2, 64, 64, 3), (8, 1024, 1024)),
    58: (_turned(3, 32, 16, (3, 5, 7)), (16, 16, 32, 64)),
    59: (_plain(3, 3, 64, (3, 3, 1)), (16, 256, 256, 10)),
    60: (_plain(3, 3, 64, (3, 5, 7)), (16, 64, 64, 64)),
    61: (_turned(3, 48, 48, 3), (8, 64, 64, 64)),
    62: (_plain(2, 32, 64, (5, 9)), (8, 512, 512)),
    63: (_plain(2, 16, 128, 3), (16, 1024, 1024)),
    64: (_turned(1, 128, 128, 3), (64, 65536)),
    65: (_turned(2, 64, 64, (3, 7)), (8, 512, 512)),
    66: (_plain(3, 3, 64, (3, 5, 7)), (8, 16, 128, 128)),
    67: (_plain(1, 64, 128, 3), (32, 131072)),
    68: (_turned(3, 32, 64, (3, 5, 5)), (16, 64, 64, 64)),
    69: (_turned(2, 64, 128, (3, 5)), (64, 128, 256)),
    70: (_turned(3, 48, 24, 3), (8, 96, 96, 96)),
    71: (_turned(2, 32, 32, 3), (8, 512, 1024)),
    72: (_turned(3, 32, 32, (3, 5, 7), stride=2, padding=(1, 2, 3), extra=1, groups=4), (8, 12, 24, 48)),
    73: (_turned(3, 32, 32, 3, stride=2, padding=1, groups=4), (4, 32, 64, 128)),
    74: (_turned(1, 32, 64, 5, dilation=3), (32, 131072)),
    75: (_turned(2, 32, 64, (3, 5), stride=(2, 3), padding=(1, 2), dilation=(2, 1), groups=4), (16, 128, 256)),
    76: (_plain(1, 64, 128, 3, stride=3, dilation=4), (64, 524280)),
    77: (_turned(3, 32, 64, 3, stride=2, padding=1, dilation=2), (16, 16, 32, 32)),
    78: (_turned(2, 32, 32, (3, 7), padding=(1, 3)), (8, 512, 1024)),
    79: (_turned(1, 32, 64, 3, stride=2, padding=1, dilation=2), (16, 131072)),
    80: (_plain(2, 32, 64, (5, 9), padding=(2, 4), dilation=(2, 3)), (8, 512, 512)),
    81: (_turned(2, 32, 64, 3, stride=5, padding=1, dilation=2), (16, 64, 128)),
    82: (_plain(2, 64, 64, 3, groups=64), (16, 512, 512)),
    83: (_plain(2, 8, 8, (3, 1), groups=8), (64, 512, 512)),
    84: (_plain(2, 128, 128, 3, groups=128), (64, 256, 512)),
    85: (_plain(2, 128, 128, (3, 7), groups=128), (32, 128, 256)),
    87: (_plain(2, 64, 128, 1), (16, 1024, 1024)),
}  # number: attributes; items, sizes


def _image(size: Sizes, conv: Conv, shape: Shape) -> Drawn:
    """Return the input of a convolution: items, channels, sizes."""
    items, *sizes = shape
    if size.reduced:
        items, sizes = 2, [min(n, max(r + 6, 8)) for n, r in zip(sizes, conv.reach(), strict=True)]
    return Drawn((items, conv.cin, *sizes), batch=0)


def _convolutions(size: Sizes) -> list[Operation]:
    answer = []
    for number, (full, shape) in CONVOLUTIONS.items():
        conv = full.reduced() if size.reduced else full
        word = "transposed conv" if conv.transposed else "depthwise conv" if conv.groups == conv.cin else "conv"
        kernel = "x".join(map(str, conv.kernel))
        inputs = (_image(size, conv, shape), conv.weight())
        answer.append(Operation(number, f"{word} {kernel}", "conv", conv.function(), inputs, conv))
    first = Conv(3, 6 if size.reduced else 96, (11, 11), 4, 2)
    inputs = (_image(size, first, (256, 224, 224)), first.weight(), Drawn((first.cout,), f"weight {3 * 121}"))
    answer.append(Operation(50, "conv 11x11 with bias", "conv", first.function(), inputs, first))
    return [*answer, _separable(size)]


def _separable(size: Sizes) -> Operation:
    """Return a depthwise convolution and one of a single tap."""
    deep, point = Conv(64, 64, (3, 3), 1, 1, 1, 64), Conv(64, 128, (1, 1))
    if size.reduced:
        deep, point = deep.reduced(), point.reduced()
    f, g = deep.function(), point.function()
    inputs = (_image(size, deep, (16, 512, 512)), deep.weight(), point.weight())
    return Operation(86, "separable conv 3x3", "conv", lambda x, w, v: g(f(x, w), v), inputs, deep)


def _scans(size: Sizes) -> list[Operation]:
    x = size.rows(32768, 32768)
    zero_first = lambda v: torch.cat((torch.zeros_like(v[:, :1]), v[:, :-1]), 1)
    made: list[tuple[str, Function, tuple[Drawn, ...]]] = [
        ("cumsum", lambda v: torch.cumsum(v, 1), (x,)),
        ("cumprod", lambda v: torch.cumprod(v, 1), (x,)),
        ("cumsum, reversed", lambda v: torch.cumsum(v.flip(1), 1).flip(1), (x,)),
        ("cumsum, exclusive", lambda v: torch.cumsum(zero_first(v), 1), (x,)),
        ("cumsum, masked", lambda v, keep: torch.cumsum(v * keep, 1), (x, replace(x, how="mask"))),
    ]
    return [Operation(k, name, "scan", f, inputs) for k, (name, f, inputs) in enumerate(made, 89)]


def _losses(size: Sizes) -> list[Operation]:
    big, heads, shares = size.rows(32768, 32768), size.rows(32, 32, 512, 1024), size.rows(16384, 16384, how="shares")
    triple = (size.rows(32768, 8192),) * 3
    kl = lambda p, t: F.kl_div(torch.log(p), t, reduction="batchmean")
    made: list[tuple[str, Function, tuple[Drawn, ...]]] = [
        ("mse", lambda p, t: torch.mean((p - t) ** 2), (big, big)),
        ("cross entropy", F.cross_entropy, (size.rows(32768, 4096), size.rows(32768, how="classes"))),
        ("huber", F.smooth_l1_loss, (big, big)),
        ("attention", F.scaled_dot_product_attention, (heads, heads, heads)),
        ("kl div", kl, (shares, shares)),
        ("triplet margin", lambda a, p, n: F.triplet_margin_loss(a, p, n, margin=1.0), triple),
        ("hinge", lambda p, t: torch.mean(torch.clamp(1 - p * t, min=0)), (big, size(32768, how="signs"))),
    ]
    kinds = {"attention": "product"}
    return [Operation(k, name, kinds.get(name, "loss"), f, inputs) for k, (name, f, inputs) in enumerate(made, 94)]


def operations(reduced: bool = False) -> Sequence[Operation]:
    """Return the 100 operations, by number, at full or at reduced sizes."""
    size = Sizes(reduced)
    families = (_products, _cells, _norms, _reductions, _convolutions, _scans, _losses)
    return sorted((one for family in families for one in family(size)), key=lambda one: one.number)
