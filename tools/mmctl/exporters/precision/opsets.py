"""Which ONNX files a release of ONNX Runtime loads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mmctl.errors import InputError


@dataclass(frozen=True, slots=True)
class Newest:
    """The highest opset of the default domain, and the highest version of the file format."""

    opset: int
    ir: int


LOADS = {
    (1, 18): Newest(21, 10),
    (1, 21): Newest(22, 10),
    (1, 23): Newest(23, 11),
    (1, 24): Newest(25, 13),
    (1, 27): Newest(26, 13),
    (1, 32): Newest(28, 14),
}
"""From this release on. Measured: each wheel from 1.18 to 1.24, 1.27, 1.28 and 1.32 was given files
of every opset and format.
"""


def check_opset(path: Path, onnxruntime: str, server: str) -> None:
    """Raises InputError when the file is newer than the server's ONNX Runtime, "1.19.2", loads.

    `server` names the release for people: "Triton 24.10".
    """
    import onnx

    header = onnx.load(path, load_external_data=False)
    opset = max((o.version for o in header.opset_import if o.domain in ("", "ai.onnx")), default=0)
    newest = _newest(onnxruntime)
    for word, found, limit in (
        ("opset", opset, newest.opset),
        ("format version", header.ir_version, newest.ir),
    ):
        if found > limit:
            raise InputError(
                f"{path.name} has ONNX {word} {found}, and ONNX Runtime {onnxruntime} "
                f"of {server} loads up to {limit}",
                hint="export it with a lower opset, or serve it with a newer release",
            )


def _newest(onnxruntime: str) -> Newest:
    major, minor = (int(part) for part in onnxruntime.split(".")[:2])
    older = [release for release in LOADS if release <= (major, minor)]
    return LOADS[max(older, default=min(LOADS))]
