"""Why TensorRT refuses a file, in words that say what to do. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from mmctl.errors import InputError

FOR_TENSORRT = (
    "build from `model.trt.onnx`, the symmetric INT8 file that `quantize: {tensorrt: true}` writes"
)


@dataclass(frozen=True, slots=True)
class Cause:
    """What a line of TensorRT's log that matches `pattern` means."""

    pattern: str
    meaning: str
    hint: str


CAUSES: tuple[Cause, ...] = (
    Cause(
        r"DynamicQuantizeLinear|ConvInteger|MatMulInteger",
        "it was quantized dynamically, which only ONNX Runtime runs",
        FOR_TENSORRT,
    ),
    Cause(
        r"input has type Int32 but must have type",
        "its biases are quantized, as ONNX Runtime wants it and TensorRT does not",
        FOR_TENSORRT,
    ),
    Cause(
        r"[Nn]on-zero zero point|shiftIsAllZeros",
        "its INT8 values are not symmetric around zero, as ONNX Runtime's are on CPUs",
        FOR_TENSORRT,
    ),
    Cause(
        r"Plugin not found|plugin.*not found",
        "it has operators of ONNX Runtime's own",
        "export it again without `onnxruntime.transformers.optimizer`",
    ),
    Cause(
        r"no optimization profile has been defined",
        "it has free axes and no profile says their sizes",
        "say them under `shapes:` in model.yaml",
    ),
    Cause(
        r"not supported by a dedicated kernel",
        "an operator of its opset has no kernel",
        "export it with opset 20 or older",
    ),
)


def refusal(onnx: str, log: Iterable[str]) -> InputError:
    """The error for a build that TensorRT refused: our reading of its log, or its last words."""
    lines = [line.strip() for line in log if line.strip()]
    for cause in CAUSES:
        if any(re.search(cause.pattern, line) for line in lines):
            return InputError(f"TensorRT does not take {onnx}: {cause.meaning}", hint=cause.hint)
    said = lines[-1] if lines else "and it does not say why"
    return InputError(f"TensorRT does not take {onnx}: {said}")
