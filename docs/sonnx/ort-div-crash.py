"""ONNX Runtime, Div of the least integer by -1: the process is killed. Each type runs in a process of its own."""

import subprocess
import sys

CODE = """
import sys, numpy as np, onnx.parser, onnxruntime as ort
kind = sys.argv[1]
model = onnx.parser.parse_model('<ir_version: 10, opset_import: ["": 14]> g (%s[1] a, %s[1] b) => (%s[n] y) '
                                '{ y = Div(a, b) }' % (kind, kind, kind))
least = np.iinfo(kind).min
feeds = {"a": np.array([least], kind), "b": np.array([-1], kind)}
print(ort.InferenceSession(model.SerializeToString()).run(None, feeds)[0].item())
"""
wrong = []
print("right  : the wrapped value, as Mul has it, or a refusal")
for kind in ("int8", "int16", "int32", "int64"):
    run = subprocess.run([sys.executable, "-c", CODE, kind], capture_output=True, text=True)
    refused = "NOT_IMPLEMENTED" in run.stderr
    shown = f"killed by signal {-run.returncode}" if run.returncode < 0 else run.stdout.strip()
    print(f"{kind:7}: {'not implemented' if refused else shown}")
    wrong += [kind] if run.returncode < 0 else []
print("verdict:", "wrong in " + ", ".join(wrong) if wrong else "right")
