"""FP32 to FP16, where the range of the values allows it."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mmctl.errors import InputError
from mmctl.exporters.precision.base import Batch, Conversion
from mmctl.exporters.precision.calibration import check_data
from mmctl.exporters.precision.files import finish, save, scratch
from mmctl.exporters.precision.prepare import check_excluded, prepared_graph, require_some

DATA_MAX = 512
"""Beyond it the distance between neighbouring FP16 numbers is 0.5 and more: stays FP32."""
WEIGHT_MAX = 65504
"""The largest FP16 number."""
ROWS = 16
"""About as many are run: modelopt keeps what every node gave for all of them until the end, which
is 0.2 GB a row for a ResNet-50.
"""

Converter = Callable[[Conversion, Any], Any]


def autocast(conversion: Conversion, model: Any) -> Any:
    """modelopt runs the model, on calibration data where there is some, and leaves in FP32 what
    FP16 cannot hold.
    """
    from modelopt.onnx.autocast import convert_to_mixed_precision

    path = conversion.work / "prepared.onnx"
    save(model, path, conversion.inline_bytes)
    return convert_to_mixed_precision(
        onnx_path=str(path),
        low_precision_type="fp16",
        nodes_to_exclude=[_exactly(name) for name in conversion.options.exclude_nodes],
        nodes_to_include=[_exactly(name) for name in _lookups(model, conversion)],
        data_max=DATA_MAX,
        init_max=WEIGHT_MAX,
        keep_io_types=True,
        calibration_data=_npz_folder(conversion),
    )


def _lookups(model: Any, conversion: Conversion) -> list[str]:
    """Gathers from tables of small numbers. To modelopt the row numbers, often beyond DATA_MAX,
    would be values of a calculation.
    """
    from onnx.numpy_helper import to_array

    small = {
        tensor.name
        for tensor in model.graph.initializer
        if to_array(tensor).dtype == np.float32
        and np.abs(to_array(tensor)).max(initial=0) <= DATA_MAX
    }
    return [
        node.name
        for node in model.graph.node
        if node.op_type == "Gather"
        and node.input[0] in small
        and node.name not in conversion.options.exclude_nodes
    ]


def _exactly(name: str) -> str:
    return f"^{re.escape(name)}$"


def _npz_folder(conversion: Conversion) -> str | None:
    if not conversion.calibration:
        return None
    folder = conversion.work / "calibration"
    folder.mkdir()
    for index, batch in enumerate(_some(conversion.calibration)):
        np.savez(folder / f"{index:06}.npz", **batch)
    return str(folder)


def _some(batches: Sequence[Batch]) -> Sequence[Batch]:
    """Whole batches out of all parts of the data: ROWS rows, but one batch at least."""
    if not batches:
        return ()
    rows = max((len(array) for array in batches[0].values() if array.ndim), default=1)
    wanted = max(1, ROWS // max(1, rows))
    return batches[:: -(-len(batches) // wanted)]


def plain(conversion: Conversion, model: Any) -> Any:
    """onnxconverter-common looks at no range: large values become infinite."""
    from onnxconverter_common.float16 import convert_float_to_float16

    return convert_float_to_float16(
        model, keep_io_types=True, node_block_list=list(conversion.options.exclude_nodes)
    )


CONVERTERS: Mapping[str, Converter] = {"nvidia-modelopt": autocast, "onnxconverter-common": plain}


@dataclass(frozen=True, slots=True)
class Fp16:
    """Tries the converters in turn; a package that is missing, or cannot, is passed over."""

    packages: Sequence[str] = tuple(CONVERTERS)

    title: str = "FP16"
    libraries: tuple[str, ...] = ("onnx", "onnxruntime", *CONVERTERS)
    needs_data: bool = False

    def convert(self, conversion: Conversion) -> Mapping[str, Any]:
        model = prepared_graph(conversion.source)
        check_excluded(model, conversion.options.exclude_nodes)
        require_some(_floats(model), (), "FP32 weights")
        check_data(model, conversion.calibration)
        failures: dict[str, str] = {}
        for package in self.packages:
            try:
                with scratch(conversion.work):
                    made = CONVERTERS[package](conversion, prepared_graph(conversion.source))
                return finish(conversion, made, "fp16", _method(package, conversion, failures))
            except InputError as error:
                failures[package] = error.message
        raise InputError(
            "no converter could make it FP16: "
            + "; ".join(f"{package}: {message}" for package, message in failures.items())
        )


def _method(package: str, conversion: Conversion, failures: Mapping[str, str]) -> Mapping[str, Any]:
    return {
        "converter": f"{package} {importlib.metadata.version(package)}",
        "passed_over": dict(failures),
        "batches": len(_some(conversion.calibration)),
        "excluded": list(conversion.options.exclude_nodes),
    }


def _floats(model: Any) -> list[str]:
    import onnx

    return [
        tensor.name
        for tensor in model.graph.initializer
        if tensor.data_type == onnx.TensorProto.FLOAT
    ]
