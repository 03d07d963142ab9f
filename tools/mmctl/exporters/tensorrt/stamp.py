"""engine.json: what is known of the engine beside it, for those who decide where it runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mmctl.files import write_json
from mmctl.lint.engine_files import SCHEMA, STAMP
from mmctl.lint.engines import EngineStamp
from mmctl.triton.profiles import Profile
from mmctl.triton.releases import render_version


def batches_of(profiles: Sequence[Profile]) -> tuple[int, int] | None:
    """The batch sizes that every profile covers; None where nothing varies."""
    if not profiles:
        return None
    return max(p.min[0] for p in profiles), min(p.max[0] for p in profiles)


def write_stamp(folder: Path, stamp: EngineStamp, onnx_sha256: str = "") -> None:
    """`onnx_sha256` is "" for an engine that somebody else made."""
    write_json(
        folder / STAMP,
        {
            "schema": SCHEMA,
            "tensorrt": render_version(stamp.tensorrt),
            "batches": list(stamp.batches) if stamp.batches else None,
            "compute_capability": stamp.capability,
            "onnx_sha256": onnx_sha256,
        },
    )
