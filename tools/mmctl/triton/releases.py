"""What each Triton release knows. One row a fact; a release is written as text, "24.10"."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mmctl.errors import InputError

OLDEST = "23.10"
EMBEDDED = "24.10"
"""The release of the embedded server: tritonserver 2.51."""


@dataclass(frozen=True, slots=True, order=True)
class Release:
    """A Triton container release. Ordered by date."""

    year: int
    month: int

    def __str__(self) -> str:
        return f"{self.year}.{self.month:02}"

    @property
    def decoupled_sender_in_default_mode(self) -> bool:
        """A Python model may answer later by its response sender (24.06)."""
        return self >= Release(24, 6)

    @property
    def named_configs(self) -> bool:
        """`--model-config-name` picks `configs/<name>.pbtxt` (24.06)."""
        return self >= Release(24, 6)

    @property
    def queue_limit_safe_in_ensembles(self) -> bool:
        """`max_queue_size` in a branching ensemble neither hangs nor crashes (26.02)."""
        return self >= Release(26, 2)

    @property
    def response_parameters(self) -> bool:
        """`InferenceResponse(parameters=...)` exists in Python models (25.02)."""
        return self >= Release(25, 2)


def parse_release(text: str) -> Release:
    """`24.10` -> Release. Raises InputError for what is not a release from 23.10 on."""
    year, _, month = text.partition(".")
    if not (year.isdigit() and month.isdigit() and len(month) == 2 and 1 <= int(month) <= 12):
        raise InputError(
            f"`{text}` is not a Triton release", hint='write year and month in quotes, "24.10"'
        )
    release = Release(int(year), int(month))
    if release < Release(23, 10):
        raise InputError(f"Triton {text} is older than {OLDEST}, the oldest that mmctl knows")
    return release


SERVERS: dict[str, str] = {
    "2.39": "23.10",
    "2.40": "23.11",
    "2.41": "23.12",
    "2.42": "24.01",
    "2.43": "24.02",
    "2.44": "24.03",
    "2.45": "24.04",
    "2.46": "24.05",
    "2.47": "24.06",
    "2.48": "24.07",
    "2.49": "24.08",
    "2.50": "24.09",
    "2.51": "24.10",
    "2.52": "24.11",
    "2.53": "24.12",
    "2.54": "25.01",
    "2.55": "25.02",
    "2.56": "25.03",
    "2.57": "25.04",
    "2.58": "25.05",
    "2.59": "25.06",
    "2.59.1": "25.07",
    "2.60": "25.08",
    "2.61": "25.09",
    "2.62": "25.10",
    "2.63": "25.11",
    "2.64": "25.12",
    "2.65": "26.01",
    "2.66": "26.02",
    "2.67": "26.03",
    "2.68": "26.04",
    "2.69": "26.05",
    "2.70": "26.06",
    "2.71": "26.07",
    "2.72": "26.08",
    "2.73": "26.09",
    "2.74": "26.10",
}
"""The release by what a server says of itself; only its patch tells 25.07 from 25.06."""


def release_of_server(version: str) -> Release | None:
    """`2.51.0` -> 24.10; None for a version that mmctl does not know."""
    minor = ".".join(version.split(".")[:2])
    known = SERVERS.get(version) or SERVERS.get(minor)
    return parse_release(known) if known else None


Version = tuple[int, ...]
"""A version of TensorRT, as far as it is known: `10.13` is `(10, 13)`."""

Verdict = Literal["fits", "differs", "unsure"]


@dataclass(frozen=True, slots=True)
class Image:
    """What NVIDIA's `-py3` image of a release holds; TensorRT comes from the image of `upstream`.

    `tensorrt` are the versions that it may have: one where somebody wrote it down, which `checked`
    says, and else those of the months around it.
    """

    release: str
    upstream: str
    tensorrt: tuple[str, ...]
    checked: bool
    onnxruntime: str

    @property
    def versions(self) -> tuple[Version, ...]:
        return tuple(parse_version(text) for text in self.tensorrt)


IMAGES: dict[str, Image] = {
    row.release: row
    for row in (
        Image("24.10", "24.10", ("10.5",), True, "1.19.2"),
        Image("24.11", "24.11", ("10.6",), False, "1.19.2"),
        Image("24.12", "24.12", ("10.7",), False, "1.20.1"),
        Image("25.01", "25.01", ("10.8.0.43",), True, "1.20.1"),
        Image("25.02", "25.02", ("10.8.0.43",), False, "1.20.1"),
        Image("25.03", "25.03", ("10.9",), True, "1.21.0"),
        Image("25.04", "25.04", ("10.9",), True, "1.21.0"),
        Image("25.05", "25.05", ("10.10",), False, "1.22.0"),
        Image("25.06", "25.06", ("10.11.0.33",), True, "1.22.0"),
        Image("25.07", "25.07", ("10.11", "10.12", "10.13"), False, "1.22.0"),
        Image("25.08", "25.08", ("10.13.2",), False, "1.23.0"),
        Image("25.09", "25.09", ("10.13.3",), False, "1.23.0"),
        Image("25.10", "25.10", ("10.13.3",), True, "1.23.1"),
        Image("25.11", "25.11", ("10.14.1",), True, "1.23.2"),
        Image("25.12", "25.12", ("10.14.1",), True, "1.23.2"),
        Image("26.01", "26.01", ("10.14", "10.15"), False, "1.23.2"),
        Image("26.02", "26.02", ("10.15",), False, "1.24.1"),
        Image("26.03", "26.03", ("10.16.0.72",), True, "1.24.2"),
        Image("26.04", "26.04", ("10.16.1",), True, "1.24.4"),
        Image("26.05", "26.04", ("10.16.1.11",), True, "1.24.4"),
        Image("26.06", "26.05", ("10.16.1", "11.0.0.114"), False, "1.24.4"),
        Image("26.07", "26.07", ("11.1.0.106",), True, "1.27.0"),
        Image("26.08", "26.08", ("11.2.1.2",), True, "1.28.0"),
        Image("26.09", "26.09", ("11.3", "11.4"), False, ""),
        Image("26.10", "26.10", ("11.3", "11.4"), False, ""),
    )
}
"""A hint, not an authority: the month of TensorRT's image and of Triton's need not agree. The
image knows: `dpkg-query -W 'libnvinfer*'` in the container.
"""


@dataclass(frozen=True, slots=True)
class OnnxRuntime:
    """What a version of ONNX Runtime reads: files up to this IR version and opset, and whether
    their weights must lie in the folder of the file, links followed.
    """

    version: str
    ir_version: int
    opset: int
    keeps_inside: bool


ONNX_RUNTIMES: tuple[OnnxRuntime, ...] = (
    OnnxRuntime("1.19", 10, 21, False),
    OnnxRuntime("1.20", 10, 21, False),
    OnnxRuntime("1.21", 10, 22, False),
    OnnxRuntime("1.22", 10, 22, False),
    OnnxRuntime("1.23", 11, 23, False),
    OnnxRuntime("1.24", 13, 25, True),
    OnnxRuntime("1.27", 13, 26, True),
    OnnxRuntime("1.28", 13, 26, True),
    OnnxRuntime("1.32", 14, 28, True),
)
"""Measured with the CPU wheel of each, oldest first. All read opset 5 of ai.onnx.ml."""


def onnxruntime_in(release: Release | None) -> OnnxRuntime:
    """The ONNX Runtime of a release; for one that mmctl does not know, the next later one that it
    knows, which reads more; without a release the latest of all.
    """
    rows = {row.version: row for row in ONNX_RUNTIMES}
    for image in IMAGES.values():
        known = rows.get(image.onnxruntime.rpartition(".")[0])
        if release and known and parse_release(image.release) >= release:
            return known
    return ONNX_RUNTIMES[-1]


def parse_version(text: str) -> Version:
    """`10.13.3` -> (10, 13, 3). Raises InputError for other text."""
    parts = text.split(".")
    if not 2 <= len(parts) <= 4 or not all(part.isdigit() for part in parts):
        raise InputError(f"`{text}` is not a TensorRT version", hint='write it as in "10.13.3"')
    return tuple(int(part) for part in parts)


def render_version(version: Version) -> str:
    return ".".join(str(part) for part in version)


def tensorrt_in(release: Release) -> str:
    """For people: which TensorRT the release has, and how sure that is."""
    row = IMAGES.get(str(release))
    if row is None:
        return "a TensorRT that mmctl does not know"
    names = " or ".join(row.tensorrt)
    return f"TensorRT {names}" if row.checked else f"TensorRT {names} (likely, not checked)"


def fits_release(version: Version, release: Release) -> Verdict:
    """Whether an engine of this TensorRT loads in the release: it wants the very same version."""
    row = IMAGES.get(str(release))
    if row is None or not row.checked:
        return "unsure"
    return "fits" if any(same_version(version, known) for known in row.versions) else "differs"


def same_version(one: Version, other: Version) -> bool:
    """Equal as far as both are known."""
    return all(a == b for a, b in zip(one, other, strict=False))


def has_precision_flags(release: Release) -> bool:
    """Whether every TensorRT that the release may have takes precision as a flag, as 11 does not.

    False where mmctl does not know.
    """
    row = IMAGES.get(str(release))
    return row is not None and all(version < (11,) for version in row.versions)
