"""The command line of `trtexec`, for TensorRT 10 and 11. Pure."""

from __future__ import annotations

from mmctl.exporters.tensorrt.spec import PLAN, BuildSpec
from mmctl.triton.profiles import EDGES, shape_argument


def trtexec_argv(spec: BuildSpec, program: str, folder: str) -> tuple[str, ...]:
    """`folder` is where the ONNX file lies and the plan goes, as `program` sees it.

    TensorRT 10 must be told that types are those of the file; in 11 they always are. Precision
    flags are in neither.
    """
    shapes = [f"--{edge}Shapes={shape_argument(spec.profiles, edge)}" for edge in EDGES]
    return (
        program,
        f"--onnx={folder}/{spec.onnx}",
        f"--saveEngine={folder}/{PLAN}",
        *(() if spec.typed_by_default else ("--stronglyTyped",)),
        *(shapes if spec.profiles else ()),
        f"--memPoolSize=workspace:{spec.workspace_mb}",
        "--skipInference",
    )
