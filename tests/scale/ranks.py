"""Jobs on several processes that talk by gloo. A job is a function of a module, called on every rank."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import tempfile
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

PRELOADED = [
    "torch",
    "torch._dynamo",
    "torch.distributed.device_mesh",
    "specgrad",
    "specgrad.scale.sharding.sharded_graph",
    "tiled_networks",
]
LONGEST = timedelta(seconds=300)  # until ranks that wait for each other give up


def on_ranks(count: int, job: Callable[..., Any], *args: Any) -> list[Any]:
    """What a job returns on every rank, or the text of its error; a server forks them, so that torch is read once."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    with tempfile.TemporaryDirectory() as folder:
        pipes, processes = [], []
        for rank in range(count):
            here, there = context.Pipe(duplex=False)
            process = context.Process(target=_work, args=(there, folder, rank, count, job, args), daemon=True)
            process.start()
            there.close()
            pipes.append(here)
            processes.append(process)
        results = [_received(pipe) for pipe in pipes]
        for process in processes:
            process.join()
    return results


def _received(pipe: Any) -> Any:
    try:
        return pickle.loads(pipe.recv_bytes())
    except EOFError:
        return "the process ended"


def _work(pipe: Any, folder: str, rank: int, count: int, job: Callable[..., Any], args: Any) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    store = dist.FileStore(str(Path(folder) / "store"), count)
    try:
        dist.init_process_group("gloo", store=store, rank=rank, world_size=count, timeout=LONGEST)
        result = pickle.dumps(job(rank, count, *args))
        pipe.send_bytes(result)  # not send: torch would share its memory, which ends here
    except Exception:
        pipe.send_bytes(pickle.dumps(traceback.format_exc()))
    finally:
        pipe.close()
        os._exit(0)  # a group in which somebody gave up cannot be taken down together
