"""The device of a worker's tensors. What is here for CUDA was written on paper: it has never run on a CUDA device.

One process has one device: a worker takes the first one that no other process holds, by a lock on a file, which the
system lets go of when the process ends. Copies go through pinned memory.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ParameterError, UnsupportedError
from ..scalar import Array
from .job_status import JobError

DEVICES = ("cpu", "cuda")


def check_device(name: str, engine: str) -> None:
    """Raise ParameterError, or UnsupportedError, unless an engine can compute tiles on the device of this name here."""
    if name == "meta":
        raise ParameterError("run", "device 'meta' has shapes and no numbers: there would be nothing to write")
    if name not in DEVICES:
        raise ParameterError("run", f"device must be one of {', '.join(DEVICES)}; got {name!r}")
    if name != "cpu" and engine != "torch":
        raise ParameterError("run", f"device={name!r} goes with engine='torch'; got engine={engine!r}")
    if name == "cuda" and len(kinds := set(cuda_names())) != 1:
        text = f"it has several kinds: {', '.join(sorted(kinds))}" if kinds else "PyTorch sees none"
        raise UnsupportedError("run", f"device='cuda' needs CUDA devices of one kind in this machine, and {text}")


def cuda_names() -> list[str]:
    """Return the names of the CUDA devices that PyTorch sees."""
    import torch

    return [torch.cuda.get_device_name(k) for k in range(torch.cuda.device_count())]


@cache
def device_here(name: str) -> Any:
    """Return PyTorch's device of this name for this process; "cuda" is one that no other process of ours has.

    JobError if there is none.
    """
    import torch

    if name != "cuda":
        return torch.device(name)
    names = [str(torch.cuda.get_device_properties(k).uuid) for k in range(torch.cuda.device_count())]
    device = torch.device("cuda", claimed(names))
    torch.cuda.set_device(device)
    return device


def claimed(names: Sequence[str], folder: Path | None = None) -> int:
    """Return the number of the first of these names that no other process holds; this one does, until it ends.

    The locks are files in a `folder`, the system's temporary one by default. JobError if all are held.
    """
    import fcntl

    for k, name in enumerate(names):
        path = (folder or Path(tempfile.gettempdir())) / f"specgrad-{os.getuid()}-{name}.lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # held while the descriptor is open
        except BlockingIOError:
            os.close(descriptor)
        else:
            return k
    raise JobError(f"all {len(names)} devices are held by other workers: a process takes one, so give fewer workers=")


def to_device(array: Array, device: Any) -> Any:
    """Return a copy of an array as a tensor on the device, by way of pinned memory if that is CUDA."""
    import torch

    tensor = torch.from_numpy(np.array(array))
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def to_array(tensor: Any) -> Array:
    """Return a tensor's numbers as an array, copied by way of pinned memory if they are on CUDA."""
    import torch

    if tensor.device.type != "cuda":
        return np.asarray(tensor)
    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    host.copy_(tensor, non_blocking=True)
    torch.cuda.current_stream(tensor.device).synchronize()
    return np.array(host)


def same_bits(name: str) -> AbstractContextManager[Any]:
    """Return a context in which cuDNN computes float32 in float32, by algorithms that give the same bits every time."""
    if name != "cuda":
        return nullcontext()
    import torch

    return torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False)
