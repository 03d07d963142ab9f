"""What an engine is made from, as a value: any machine that has the GPU makes it out of this."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from mmctl.files import render_json
from mmctl.lint.engines import EngineTarget
from mmctl.triton.generate import TENSORRT
from mmctl.triton.profiles import Profile
from mmctl.triton.releases import IMAGES, render_version

SCHEMA = 1
PLAN = TENSORRT.filename
SPEC = "build.json"
FLAGS = ("strongly_typed",)
"""All that the builder is told. Precision is none of it: it is in the ONNX file."""


@dataclass(frozen=True, slots=True)
class BuildSpec:
    """`onnx` names the file beside build.json. `profiles` is empty for fixed shapes."""

    model: str
    version: int
    onnx: str
    onnx_sha256: str
    profiles: tuple[Profile, ...]
    workspace_mb: int
    target: EngineTarget

    @property
    def typed_by_default(self) -> bool:
        """Whether the target's TensorRT is surely 11 or newer, where all networks are typed."""
        if self.target.tensorrt:
            return self.target.tensorrt >= (11,)
        image = IMAGES.get(str(self.target.release))
        return image is not None and all(version >= (11,) for version in image.versions)


def render_spec(spec: BuildSpec) -> str:
    """build.json; equal specs give equal bytes."""
    return render_json(
        {
            "schema": SCHEMA,
            "model": spec.model,
            "version": spec.version,
            "onnx": {"file": spec.onnx, "sha256": spec.onnx_sha256},
            "profiles": [asdict(profile) for profile in spec.profiles],
            "workspace_mb": spec.workspace_mb,
            "flags": list(FLAGS),
            "target": _target_json(spec.target),
        }
    )


def _target_json(target: EngineTarget) -> dict[str, object]:
    """The TensorRT to expect; `checked` is False where mmctl only guesses it."""
    image = IMAGES.get(str(target.release))
    known = image.tensorrt if image else ()
    said = (render_version(target.tensorrt),) if target.tensorrt else known
    return {
        "release": str(target.release),
        "tensorrt": list(said),
        "checked": bool(target.tensorrt) or (image is not None and image.checked),
    }
