"""Entry points that job files name: a worker rebuilds the plan and its job from a folder of records."""

from __future__ import annotations

from typing import Any

from ..partition.spatial_axes import SpatialAxes
from .job_status import JobError
from .plan import Plan
from .plan_file import Blueprint
from .record_store import Records
from .tile_job import TileJob, from_npy
from .zarr_arrays import Store

ITEMSIZE = 4  # decides what a plan says of its memory, and no result


def plan_of(blueprint: Blueprint) -> Plan:
    """Rebuild the plan that a blueprint describes, in a worker process."""
    about = blueprint.about
    return Plan(SpatialAxes(blueprint.graph(), about["axes"]), about["size"], ITEMSIZE, about["statistics"])


def tile_job(folder: str, sources: Any, targets: Any, rounded: list[int], stage: int | None) -> TileJob:
    """Rebuild the job of a plan's tiles (stage None) or of one pass.

    JobError if the folder lacks the result of a pass. `rounded` are the outputs that may be rounded.

    Sources and targets are (position, name, address).
    """
    records = Records(folder)
    blueprint = Blueprint.read(records)
    plan = plan_of(blueprint)
    reads, writes = ({p: Store(name, address) for p, name, address in group} for group in (sources, targets))
    job = TileJob(plan, blueprint, reads, writes, rounded, stage)
    for p in [] if blueprint.arrays_of("known") else plan.statistics[:stage]:
        data = records.get(f"known/{p}")
        if data is None:
            raise JobError(f"{records.where} lacks what the pass of {plan.graph.nodes[p].group} computes")
        job.runner.add_known({p: from_npy(data)})
    return job
