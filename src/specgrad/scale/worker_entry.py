"""What a worker makes of a folder: the plan again, and its job. Recipes name these functions; nobody imports them."""

from __future__ import annotations

from typing import Any

from ..partition.spatial_axes import SpatialAxes
from .job_status import JobError
from .plan import Plan
from .plan_file import Blueprint
from .record_store import Records
from .tile_job import TileJob, unpacked
from .zarr_arrays import Store

ITEMSIZE = 4  # decides what a plan says of its memory, and no result


def plan_of(blueprint: Blueprint) -> Plan:
    about = blueprint.about
    return Plan(SpatialAxes(blueprint.graph(), about["axes"]), about["size"], ITEMSIZE, about["statistics"])


def tile_job(folder: str, sources: Any, targets: Any, rounded: list[int], stage: int | None) -> TileJob:
    """sources, targets: (position, name, address) of each."""
    records = Records(folder)
    blueprint = Blueprint.read(records)
    plan = plan_of(blueprint)
    reads, writes = ({p: Store(name, address) for p, name, address in group} for group in (sources, targets))
    job = TileJob(plan, blueprint, reads, writes, rounded, stage)
    for p in [] if blueprint.of("known") else plan.statistics[:stage]:
        data = records.get(f"known/{p}")
        if data is None:
            raise JobError(f"{records.where} lacks what the pass of {plan.graph.nodes[p].group} computes")
        job.shop.know({p: unpacked(data)})
    return job
