"""Entry points that job files name: a worker rebuilds the plan and its job from a folder of records."""

from __future__ import annotations

from typing import Any

from ..bounded_files import as_file_error
from ..partition.spatial_axes import SpatialAxes
from .job_status import read_record, status
from .plan import Plan
from .plan_file import Blueprint
from .record_store import Records
from .tile_job import TileJob, from_npy
from .zarr_arrays import Store

ITEMSIZE = 4  # decides what a plan says of its memory, and no result


def plan_of(blueprint: Blueprint) -> Plan:
    """Rebuild the plan that a blueprint describes, in a worker process; FileError if it describes none."""
    about = blueprint.about
    with as_file_error("the plan's file", "a plan"):
        return Plan(SpatialAxes(blueprint.graph(), about["axes"]), about["size"], ITEMSIZE, about["statistics"])


def tile_job(folder: str, sources: Any, targets: Any, rounded: list[int], stage: int | None) -> TileJob:
    """Rebuild the job of a plan's tiles (stage None) or of one pass.

    JobError if the folder lacks the result of a pass, or a record there was changed. `rounded` are the outputs that may
    be rounded.

    Sources and targets are (position, name, address).
    """
    records = Records(folder)
    blueprint = Blueprint.read(records)
    plan = plan_of(blueprint)
    reads, writes = ({p: Store(name, address) for p, name, address in group} for group in (sources, targets))
    job = TileJob(plan, blueprint, reads, writes, rounded, stage)
    for p in [] if blueprint.arrays_of("known") else plan.statistics[:stage]:
        job.runner.known[p] = from_npy(read_record(records, f"known/{p}", status(records).about))
    return job
