"""How to run an ONNX file of one function on runtimes that are measured but not installed by the tests.

Each entry is a program for `specgrad.process.Process`: run(model, /, **inputs) with the bytes of the file.
"""

HEAD = """import os, tempfile
import numpy as np

def stored(model, folder, name="model.onnx"):
    path = os.path.join(folder, name)
    with open(path, "wb") as file:
        file.write(model.tobytes())
    return path
"""
IREE = (
    HEAD
    + """
import iree.compiler as compiler
import iree.runtime as runtime
from iree.compiler.tools.import_onnx.__main__ import main, parse_arguments

def run(model, /, **inputs):
    with tempfile.TemporaryDirectory() as folder:
        text = os.path.join(folder, "model.mlir")
        main(parse_arguments([stored(model, folder), "-o", text]))
        options = ["--iree-llvmcpu-target-cpu=host"]
        made = compiler.compile_file(text, target_backends=["llvm-cpu"], input_type="onnx", extra_args=options)
    config = runtime.Config("local-sync")
    found = runtime.load_vm_module(runtime.VmModule.copy_buffer(config.vm_instance, made), config)
    name = next(n for n in found.vm_module.function_names if "$" not in n and not n.startswith("_"))
    return [np.asarray(getattr(found, name)(*inputs.values()).to_host())]
"""
)
TRACT = (
    HEAD
    + """
import tract

def run(model, /, **inputs):
    with tempfile.TemporaryDirectory() as folder:
        runnable = tract.onnx().load(stored(model, folder)).into_model().into_runnable()
    return [t.to_numpy() for t in runnable.run(list(inputs.values()))]
"""
)
MNN = (
    HEAD
    + """
import _tools  # MNN.tools would install a package and report what it converts
import MNN

def run(model, /, **inputs):
    with tempfile.TemporaryDirectory() as folder:
        made = os.path.join(folder, "model.mnn")
        names = {"-f": "ONNX", "--modelFile": stored(model, folder), "--MNNModel": made, "--bizCode": "none"}
        _tools.mnnconvert(["", *(word for pair in names.items() for word in pair)])
        options = dict(backend=MNN.expr.Backend.CPU, precision_mode=MNN.expr.PrecisionMode.High, thread_num=1)
        net = MNN.nn.load_module_from_file(made, list(inputs), ["y"], **options)
    given = [MNN.expr.const(a, list(a.shape)) for a in inputs.values()]
    return [np.array(v.read()) for v in net.onForward(given)]
"""
)
NCNN = (
    HEAD
    + """
import ncnn
import onnx

LAYERS = {
    "Exp": "UnaryOp 0=7", "Log": "UnaryOp 0=8", "Sqrt": "UnaryOp 0=5", "Sin": "UnaryOp 0=9", "Cos": "UnaryOp 0=10",
    "Tanh": "TanH", "Sigmoid": "Sigmoid", "Softplus": "Softplus", "Gelu": "GELU", "Erf": "Erf",
    "HardSwish": "HardSwish 0=0.166666667 1=0.5", "Mul": "Swish", "Pow": "BinaryOp 0=6 1=1",
}

def run(model, /, **inputs):
    graph = onnx.load_from_string(model.tobytes()).graph
    layer, *arguments = LAYERS[graph.node[-1].op_type].split()
    if graph.initializer:
        arguments.append(f"2={onnx.numpy_helper.to_array(graph.initializer[0]).item():.9g}")
    net = ncnn.Net()
    for name in ("fp16_packed", "fp16_storage", "fp16_arithmetic", "bf16_storage", "bf16_packed"):
        setattr(net.opt, f"use_{name}", False)
    net.opt.num_threads = 1
    with tempfile.TemporaryDirectory() as folder:
        lines = f"7767517\\n2 2\\nInput x 0 1 x\\n{layer} f 1 1 x y {' '.join(arguments)}\\n"
        stored(np.zeros(0, np.uint8), folder, "weights")
        text = stored(np.frombuffer(lines.encode(), np.uint8), folder, "layers")
        assert net.load_param(text) == 0 and net.load_model(os.path.join(folder, "weights")) == 0
    (x,) = inputs.values()
    extractor = net.create_extractor()
    extractor.input("x", ncnn.Mat(x.reshape(-1)).clone())
    return [np.array(extractor.extract("y")[1])]
"""
)
OTHERS = {
    "iree": (("iree-base-compiler", "iree-base-runtime"), IREE),
    "tract": (("tract",), TRACT),
    "mnn": (("mnn",), MNN),
    "ncnn": (("ncnn",), NCNN),
}
"""Name -> the packages, and the program. ncnn reads no ONNX file: its layer of the same name is taken."""
