"""Engines that no GPU made, for tests: files with TensorRT's header, and a `trtexec` that writes
them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import dedent

from mmctl.exporters.tensorrt.spec import BuildSpec
from mmctl.lint.engines import EngineTarget
from mmctl.triton.profiles import Profile
from mmctl.triton.releases import Version, parse_release

V10 = (10, 13, 3, 9)
V11 = (11, 1, 0, 106)

IMAGE_PROFILE = Profile("pixels", (1, 3, 224, 224), (8, 3, 224, 224), (32, 3, 224, 224))
TEXT_PROFILES = (
    Profile("input_ids", (1, 1), (16, 64), (64, 256)),
    Profile("attention_mask", (1, 1), (16, 64), (64, 256)),
)


def plan_bytes(version: Version = V10, size: int = 40, tag: bytes = b"ftrt") -> bytes:
    """`size` bytes in all, header included."""
    head = b"".join((tag, bytes(12), size.to_bytes(8, "little"), bytes(version)))
    return head.ljust(size, b"\0")


def spec(
    release: str = "25.10",
    profiles: tuple[Profile, ...] = (IMAGE_PROFILE,),
    onnx: str = "model.onnx",
) -> BuildSpec:
    target = EngineTarget("gpu", parse_release(release))
    return BuildSpec("resnet", 3, onnx, "0" * 64, profiles, 4096, target)


def fake_trtexec(path: Path, version: Version = V10) -> str:
    """A program that takes what trtexec of TensorRT 10 and 11 both take, and no other argument; it
    writes a file with the header of an engine. A file named `broken.onnx` is refused.
    """
    known = (
        "--onnx= --saveEngine= --stronglyTyped --minShapes= --optShapes= --maxShapes= "
        "--memPoolSize=workspace: --skipInference"
    )
    path.write_text(
        dedent(
            f"""\
            #!{sys.executable}
            import sys
            known = {known.split()!r}
            for argument in sys.argv[1:]:
                if not argument.startswith(tuple(known)):
                    sys.exit(f"&&&& FAILED unknown option {{argument}}")
            said = dict(a.split("=", 1) for a in sys.argv[1:] if "=" in a)
            if said["--onnx"].endswith("broken.onnx"):
                sys.exit("[E] In node 3: UNSUPPORTED_NODE: DynamicQuantizeLinear")
            open(said["--onnx"], "rb").close()
            open(said["--saveEngine"], "wb").write({plan_bytes(version)!r})
            """
        )
    )
    path.chmod(0o755)
    return str(path)
