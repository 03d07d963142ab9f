"""ONNX Runtime sessions on a device, and which devices there are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mmctl.exporters.tensorrt.gpus import local_capabilities
from mmctl.tensors import Array
from mmctl.trials.compare.table import Device

PROVIDERS: Mapping[Device, str] = {
    "cpu": "CPUExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
}
"""A GPU is used through TensorRT's: it builds an engine when the session is made."""


def open_on(
    device: Device, path: Path, threads: int, request: Mapping[str, Array], most: int
) -> Any:
    """A session that runs all of the model there. `request` and the batch `most` say for which
    shapes an engine is built.

    Raises what ONNX Runtime raises, and RuntimeError when it would quietly use the CPU instead.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    wanted = PROVIDERS[device]
    settings = profile(request, most) if device == "tensorrt" else {}
    session = onnxruntime.InferenceSession(path, options, providers=[(wanted, settings)])
    if wanted not in session.get_providers():
        raise RuntimeError(f"{wanted} does not work here, and the processor would take over")
    return session


def profile(request: Mapping[str, Array], most: int) -> dict[str, str]:
    """TensorRT's optimization profile: batches of 1 to `most`; of 0 there is no batch axis."""

    def shapes(batch: int) -> str:
        return ",".join(
            f"{name}:" + "x".join(map(str, (batch, *array.shape[1:]) if most else array.shape))
            for name, array in request.items()
        )

    return {
        "trt_profile_min_shapes": shapes(1),
        "trt_profile_opt_shapes": shapes(most),
        "trt_profile_max_shapes": shapes(most),
    }


def lacks_tensorrt() -> str:
    """Why no engine can be measured here; empty when one can."""
    import onnxruntime

    if not local_capabilities():
        return "there is no GPU here"
    needed = PROVIDERS["tensorrt"]
    there = needed in onnxruntime.get_available_providers()
    return "" if there else f"ONNX Runtime here comes without {needed}"
