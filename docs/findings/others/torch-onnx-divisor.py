# AvgPool2d(2, divisor_override=3) of four ones is 4/3. The file that torch.onnx writes divides by 4.
import logging
import warnings

import numpy as np
import onnxruntime
import torch

logging.disable(logging.WARNING)
warnings.simplefilter("ignore")
pool = torch.nn.AvgPool2d(2, divisor_override=3).eval()
x = torch.ones(1, 1, 2, 2)
program = torch.onnx.export(pool, (x,), dynamo=True, verbose=False)
session = onnxruntime.InferenceSession(program.model_proto.SerializeToString(), providers=["CPUExecutionProvider"])
got = session.run(None, {session.get_inputs()[0].name: x.numpy()})[0]
print("torch", torch.__version__ + ", onnxruntime", onnxruntime.__version__)
print(f"must be {float(np.float32(4) / np.float32(3)):.4f}, PyTorch {pool(x).item():.4f}, the file {got.item():.4f}")
