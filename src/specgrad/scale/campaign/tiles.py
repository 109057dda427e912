"""Campaigns of kind tiles: one model over an array larger than memory, from store to store."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from specgrad.graph.ir.tree import transform
from specgrad.interop.model import ANY_SIZE, open_model

from ...errors import need
from ...graph.graph import Graph
from ..plan import Plan, tiles
from ..plan_file import Blueprint, blueprint_of, compute_dtype
from ..record_store import URL
from ..run_plan import targets_of
from ..tile_job import TileJob
from ..zarr_arrays import Store, open_source
from .keys import CampaignError, Key
from .kind import Finding, Kind, Progress, Row, digest_of_model, line_of

TYPES = ("float32", "float64", "float16", "uint8", "int8", "uint16", "int16", "int32", "int64", "bool")


class TilesKind(Kind):
    """Campaign over the tiles of one model: shard i writes tile i, then records a checksum of its cells.

    As `plan.run` of a plan without passes; the weights are the model's own. CampaignError if the source is missing, or
    targets or types do not fit.
    """

    name = "tiles"
    BAD = ("damaged",)
    GOOD = ("written",)
    KEYS = {  # noqa: RUF012
        "model": Key("text", "an ONNX file, or a saved graph (.json), of one input"),
        "source": Key("text", "the zarr v3 array that it reads: a path, or s3://..."),
        "targets": Key("texts", "the arrays that it writes, one per output; made if they are not there"),
        "tile": Key("tile", "cells of the first output per tile, one number or one per axis; see specgrad tiles"),
        "axes": Key("axes", "spatial axes of the input, [1, 2] for NHWC; default: after the second", None),
        "engine": Key("text", "torch, jax or numpy", "torch"),
        "device": Key("text", "cpu, or cuda with engine torch: one worker per device", "cpu"),
        "compute": Key("text", "the type of floats that the engine is given; default: the source's", None),
        "dtype": Key("text", "the type of targets that are made, to which values are rounded; default: compute", None),
        "fill_missing": Key(
            "flag", "take the fill value for chunks that the source lacks; else they are refused", False
        ),
    }

    def __init__(self, given: Mapping[str, Any], home: str | Path) -> None:
        super().__init__(given, home)
        o = self.options
        need("tensorstore", "arrays in stores need")
        try:
            there = Store("source", self._store_address(o["source"]))
        except FileNotFoundError:
            raise CampaignError(f"no zarr array {o['source']} in {self.home}") from None
        graph = self._graph_at_source(there.shape)
        self.plan: Plan = tiles(graph, o["tile"] if isinstance(o["tile"], int) else tuple(o["tile"]), axes=o["axes"])
        if len(o["targets"]) != len(graph.output_positions):
            text = f"the model has {len(graph.output_positions)} outputs, and targets names {len(o['targets'])}"
            raise CampaignError(text)
        (position,) = graph.input_positions
        self.sources = {position: open_source(graph.names[0], there.address, graph.nodes[position].shape)}
        read = {"source": there.dtype} if graph.nodes[position].kind == "real" else {}
        for key in ("compute", "dtype"):
            if o[key] is not None and o[key] not in TYPES:
                raise CampaignError(f"{key} must be one of {', '.join(TYPES)}; got {o[key]!r:.40}")
        self.compute = compute_dtype({}, read, o["compute"])

    def _store_address(self, text: str) -> str:
        """Return the address of a store that `text` names; paths are from the spec's folder."""
        return text if URL.match(text) else str(self.home / text)

    def _graph_at_source(self, shape: tuple[int, ...]) -> Graph:
        """Return the model's graph at the shape of the source; CampaignError unless it has one input."""
        model = open_model(self.file(self.options["model"]), "campaign")
        if len(model.names) != 1:
            text = f"{self.options['model']} takes {', '.join(model.names)}; a model of one input is needed"
            raise CampaignError(text)
        return model.graph({model.names[0]: shape}, largest_value=ANY_SIZE).at()

    @property
    def count(self) -> int:
        """Return the number of tiles, one per shard."""
        return len(self.plan)

    @cached_property
    def blueprint(self) -> Blueprint:
        """Return the plan in serialisable form, with its engine and number type."""
        return blueprint_of(self.plan, {}, self.options["engine"], self.compute, self.options["device"])

    @cached_property
    def tile_job(self) -> TileJob:
        """The job of the plan's tiles; target arrays that do not exist are created here."""
        places = iter([self._store_address(name) for name in self.options["targets"]])
        trees = transform(lambda _, p: next(places), self.plan.graph.outputs)
        stores, rounded = targets_of(self.plan, trees, self.compute, self.options["dtype"])
        return TileJob(self.plan, self.blueprint, self.sources, stores, rounded, None)

    def fingerprint_inputs(self) -> dict[str, Any]:
        """Return digests of model, plan, source and targets; a target is known by its metadata, not its address."""
        tile_job = self.tile_job
        groups = {"sources": tile_job.sources, "targets": tile_job.targets}
        stores = {
            group: {s.name: {k: v for k, v in s.identity.items() if k != "address"} for s in given.values()}
            for group, given in groups.items()
        }
        return {"model": digest_of_model(self.home / self.options["model"]), "plan": self.blueprint.identity, **stores}

    def rows(self, shard: int) -> Iterator[Row]:
        """Compute and write the tile of a shard, and yield its record as the only row."""
        yield {"verdict": "written", **json.loads(self.tile_job.work(shard))}

    def dry_run(self, shard: int) -> bytes:
        """Read and compute the tile of a shard without writing it; return one empty row."""
        job = TileJob(self.plan, self.blueprint, self.sources, {}, [], None)
        job.compute_tile(self.plan[shard], job.read(self.plan[shard]))
        return b"\n"

    def begin(self, fingerprint: str, repair: Callable[[], None] | None, look: bool, started: bool) -> None:
        """Say in the targets whose they are; see `TileJob.claim`."""
        self.tile_job.claim(fingerprint, repair, self.options["fill_missing"], look, started)

    def changes(self, data: bytes) -> str:
        """Return what the record of a tile says that is no longer so; "" for nothing."""
        return self.tile_job.changes(data)

    def recheck_row(self, row: Row) -> Row:
        """Return the row, with verdict "damaged" if target or source no longer hold what was written and read."""
        why = self.changes(line_of(row))
        return {**row, "verdict": "damaged", "why": why} if why else row

    def group_of(self, row: Row) -> str:
        """Return the model, under which all tiles are counted."""
        return str(self.options["model"])

    def dedup_key(self, row: Row) -> tuple[Any, ...]:
        """Return (why,): of tiles that are damaged in one way the first is reported."""
        return (row["why"],)

    def size_key(self, row: Row) -> tuple[Any, ...]:
        """Return a sort key: the number of the shard."""
        return (row["shard"],)

    def findings(self, smallest: Sequence[tuple[Row, int]], progress: Progress) -> list[Finding]:
        """Return a finding without a script for each (smallest row, number of rows) of damaged tiles."""
        text = "run the campaign with --repair to have it computed again"
        return [Finding(f"tile {row['tile']}", f"{row['why']}; {text}", row, times) for row, times in smallest]
