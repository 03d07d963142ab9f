"""Stages on tiny networks: what every conversion keeps, and what it refuses."""

from __future__ import annotations

import json
import os
import resource
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx_samples import identity
from precision_models import (
    answers,
    ids,
    images,
    overflow_input,
    overflowing,
    separable_convolutions,
    small_convolutions,
    small_products,
    written,
)

from mmctl.errors import InputError, WorldError
from mmctl.exporters.precision import STAGES, method_for, stages_for
from mmctl.exporters.precision.base import Conversion, Quantize, Stage
from mmctl.exporters.precision.cpu import has_vnni
from mmctl.exporters.precision.files import external_files, keep_signature
from mmctl.exporters.precision.fp16 import Fp16
from mmctl.files import sha256_file

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

PLAIN_FP16 = Fp16(packages=("onnxconverter-common",))
"""Without modelopt, which takes seconds to import."""

STATIC, DYNAMIC, TENSORRT, INT4 = (
    STAGES[name] for name in ("int8-static", "int8-dynamic", "int8-tensorrt", "int4")
)
EVERY = [
    pytest.param(PLAIN_FP16, "image", "fp16", id="fp16"),
    pytest.param(STATIC, "image", "int8-static", id="static"),
    pytest.param(STATIC, "ids", "int8-static", id="static products"),
    pytest.param(DYNAMIC, "ids", "int8-dynamic", id="dynamic"),
    pytest.param(TENSORRT, "image", "int8-tensorrt", id="tensorrt"),
    pytest.param(INT4, "ids", "int4", id="int4"),
]


def conversion(folder: Path, kind: str = "image", **options: Any) -> Conversion:
    """Of one of the small models, with calibration data that fits it."""
    content = {"image": small_convolutions, "ids": small_products}[kind]()
    draw = {"image": images, "ids": ids}[kind]
    (folder / "work").mkdir(exist_ok=True)
    (folder / "out").mkdir(exist_ok=True)
    return Conversion(
        written(content, folder / "fp32.onnx"),
        folder / "out" / "model.onnx",
        folder / "work",
        [draw(4, seed=seed) for seed in (1, 2)],
        Quantize(**options),
    )


def operators(path: Path) -> Counter[str]:
    return Counter(node.op_type for node in onnx.load(path).graph.node)


def metadata(path: Path) -> dict[str, str]:
    return {entry.key: entry.value for entry in onnx.load(path).metadata_props}


# ---------------------------------------------------------------- what every stage keeps


@pytest.mark.parametrize(("stage", "kind", "name"), EVERY)
def test_callers_see_no_difference(stage: Stage, kind: str, name: str, tmp_path: Path) -> None:
    job = conversion(tmp_path, kind)
    details = stage.convert(job)
    before, after = (onnx.load(path).graph for path in (job.source, job.target))
    assert (after.input, after.output) == (before.input, before.output)
    inputs = {"image": images, "ids": ids}[kind](3)
    exact, close = answers(job.source, inputs), answers(job.target, inputs)
    assert 0 < np.abs(exact - close).max() < 0.2 * np.abs(exact).max()
    assert json.loads(json.dumps(details)) == details
    assert details["stage"] == name


@pytest.mark.parametrize(("stage", "kind", "name"), EVERY)
def test_the_file_says_how_it_was_made(stage: Stage, kind: str, name: str, tmp_path: Path) -> None:
    job = conversion(tmp_path, kind)
    model = onnx.load(job.source)
    onnx.helper.set_model_props(model, {"character": "abc", "mmctl.stage": "older"})
    onnx.save(model, job.source)
    stage.convert(job)
    found = metadata(job.target)
    assert found["character"] == "abc"
    assert found["mmctl.stage"] == name
    assert found["mmctl.source_sha256"] == sha256_file(job.source)
    assert "excluded" in json.loads(found["mmctl.method"])


@pytest.mark.parametrize(("stage", "kind", "name"), EVERY)
def test_scratch_files_stay_in_the_scratch_folder_and_words_in_the_box(
    stage: Stage, kind: str, name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    job = conversion(tmp_path, kind)
    here = set(os.listdir())
    stage.convert(job)
    assert set(os.listdir()) == here
    assert [path.name for path in job.target.parent.iterdir()] == ["model.onnx"]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("stage", "kind", "name"), EVERY)
def test_equal_sources_give_equal_bytes(stage: Stage, kind: str, name: str, tmp_path: Path) -> None:
    job = conversion(tmp_path, kind)
    stage.convert(job)
    (tmp_path / "again").mkdir()
    again = replace(conversion(tmp_path / "again", kind), source=job.source)
    stage.convert(again)
    assert again.target.read_bytes() == job.target.read_bytes()


def test_names_of_free_axes_come_back_but_no_other_change_is_let_through(tmp_path: Path) -> None:
    source = written(small_convolutions(), tmp_path / "fp32.onnx")
    model = onnx.load(source)
    model.graph.output[0].type.tensor_type.shape.dim[0].dim_param = "other"
    keep_signature(source, model)
    assert model.graph.output == onnx.load(source).graph.output
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 5
    with pytest.raises(InputError, match=r"`scores` from FLOAT\[-1, 4\] to FLOAT\[-1, 5\]"):
        keep_signature(source, model)


# ---------------------------------------------------------------- what each stage does


def test_static_quantization_leaves_first_and_last_layer_alone(tmp_path: Path) -> None:
    job = conversion(tmp_path)
    assert STATIC.convert(job)["excluded"] == ["conv1", "head"]
    graph = onnx.load(job.target).graph
    made_by = {name: node.op_type for node in graph.node for name in node.output}
    weight_from = {node.name: made_by.get(node.input[1]) for node in graph.node if node.input[1:]}
    assert weight_from["conv1"] is None
    assert weight_from["head"] is None
    assert {weight_from["conv2"], weight_from["conv3"]} == {"DequantizeLinear"}


def test_channels_taken_apart_and_mixed_again_stay_fp32_with_the_first_layer(
    tmp_path: Path,
) -> None:
    """And the last layer, which holds more than a small part of the weights, does not."""
    job = conversion(tmp_path)
    written(separable_convolutions(side=8), job.source)
    batch = {"image": np.random.default_rng(1).standard_normal((4, 16, 8, 8)).astype(np.float32)}
    done = STATIC.convert(replace(job, calibration=[batch]))
    assert done["excluded"] == ["Conv_0", "Conv_2", "Conv_4"]


def test_excluded_nodes_stay_fp32(tmp_path: Path) -> None:
    job = conversion(tmp_path, "ids", exclude_nodes=("second", "look_up"))
    DYNAMIC.convert(job)
    found = operators(job.target)
    assert (found["MatMulInteger"], found["MatMul"]) == (2, 1)


def test_dynamic_quantization_takes_the_table_too(tmp_path: Path) -> None:
    job = conversion(tmp_path, "ids")
    written(small_products(words=2000), job.source)
    DYNAMIC.convert(job)
    assert job.target.stat().st_size < 0.3 * job.source.stat().st_size


def test_the_tensorrt_form_is_symmetric_and_has_no_integer_bias(tmp_path: Path) -> None:
    job = conversion(tmp_path)
    TENSORRT.convert(job)
    graph = onnx.load(job.target).graph
    constants = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    pairs = ("QuantizeLinear", "DequantizeLinear")
    points = [constants[node.input[2]] for node in graph.node if node.op_type in pairs]
    assert {point.dtype for point in points} == {np.dtype(np.int8)}
    assert not any(point.any() for point in points)


@pytest.mark.parametrize("method", ["entropy", "percentile"])
def test_batches_of_different_shapes_are_padded_for_histograms(method: str, tmp_path: Path) -> None:
    job = conversion(tmp_path, "ids", calibrate=method)
    ragged = replace(job, calibration=[ids(4, 6), ids(3, 9), ids(4, 2)])
    assert STATIC.convert(ragged)["batches"] == 3


@pytest.mark.parametrize("stage", [STATIC, TENSORRT], ids=["static", "tensorrt"])
def test_weights_behind_casts_are_converted(stage: Stage, tmp_path: Path) -> None:
    job = conversion(tmp_path)
    written(small_convolutions("float16"), job.source)
    stage.convert(job)
    assert operators(job.target)["Cast"] == 0
    assert operators(job.target)["DequantizeLinear"] > 0


def test_a_plain_converter_makes_large_values_infinite(tmp_path: Path) -> None:
    job = conversion(tmp_path)
    written(overflowing(), job.source)
    PLAIN_FP16.convert(replace(job, calibration=[]))
    assert np.isfinite(answers(job.source, overflow_input(8))).all()
    assert np.isnan(answers(job.target, overflow_input(8))).mean() > 0.9


def test_fp16_is_made_without_modelopt_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "modelopt.onnx.autocast", None)
    details = STAGES["fp16"].convert(conversion(tmp_path))
    assert details["converter"].startswith("onnxconverter-common ")
    assert "ModuleNotFoundError" in details["passed_over"]["nvidia-modelopt"]


# ---------------------------------------------------------------- which stages


@pytest.mark.parametrize(("kind", "method"), [("image", "static"), ("ids", "dynamic")])
def test_auto_looks_where_the_multiplications_are(kind: str, method: str, tmp_path: Path) -> None:
    source = conversion(tmp_path, kind).source
    assert method_for(source, Quantize()) == method
    fixed = onnx.load(source)
    fixed.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2
    assert (
        method_for(written(fixed.SerializeToString(), tmp_path / "two.onnx"), Quantize()) == method
    )
    assert method_for(source, Quantize(method="static")) == "static"


@pytest.mark.parametrize(
    ("precision", "options", "files"),
    [
        ("fp32", Quantize(), {}),
        ("fp16", Quantize(), {"model.fp16.onnx": "FP16"}),
        ("int8", Quantize(), {"model.onnx": "INT8, static"}),
        (
            "int8",
            Quantize(method="dynamic", tensorrt=True),
            {"model.onnx": "INT8, dynamic", "model.trt.onnx": "INT8 for TensorRT"},
        ),
        ("int4", Quantize(), {"model.onnx": "INT4 weights (experimental)"}),
    ],
    ids=["fp32", "fp16", "int8", "int8 with tensorrt", "int4"],
)
def test_files_of_a_version_by_precision(
    precision: str, options: Quantize, files: Mapping[str, str], tmp_path: Path
) -> None:
    planned = stages_for(precision, conversion(tmp_path).source, options)
    assert {name: stage.title for name, stage in planned} == files


# ---------------------------------------------------------------- what is refused


def without_data(job: Conversion) -> Conversion:
    return replace(job, calibration=[])


def with_batch(batch: Mapping[str, Any]) -> Any:
    return lambda job: replace(job, calibration=[*job.calibration, batch])


ONE_IMAGE = images(1)["image"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without_data, "calibration data is missing"),
        (with_batch({"images": ONE_IMAGE}), "calibration batch 2: the model has no input `images`"),
        (with_batch({}), "calibration batch 2: input `image` is missing"),
        (
            with_batch({"image": ONE_IMAGE[:, :, :4]}),
            r"`image` has shape \[1, 3, 4, 8\], the model takes \[-1, 3, 8, 8\]",
        ),
        (with_batch({"image": ONE_IMAGE[0]}), r"has shape \[3, 8, 8\], the model takes"),
        (with_batch({"image": ONE_IMAGE.astype(float)}), "is float64, the model takes float32"),
        (with_batch({"image": ONE_IMAGE * np.nan}), "`image` holds NaN or infinity"),
        (
            lambda job: replace(job, calibration=[{"image": ONE_IMAGE[[0, 0]]}] * 3),
            "one sample over and over",
        ),
        (
            lambda job: replace(job, options=Quantize(exclude_nodes=("conv9",))),
            "`exclude_nodes`: the graph has no node `conv9`",
        ),
        (
            lambda job: replace(
                job, options=Quantize(exclude_nodes=("conv1", "conv2", "conv3", "head"))
            ),
            "nothing to convert: .* outside `exclude_nodes`",
        ),
    ],
    ids=[
        "no data",
        "wrong key",
        "missing key",
        "wrong shape",
        "wrong rank",
        "wrong type",
        "not finite",
        "all equal",
        "unknown node",
        "all excluded",
    ],
)
def test_what_cannot_be_calibrated_is_said_before_the_work(
    change: Any, message: str, tmp_path: Path
) -> None:
    job = change(conversion(tmp_path))
    with pytest.raises(InputError, match=message):
        STATIC.convert(job)
    assert not list(job.target.parent.iterdir())


@pytest.mark.parametrize("stage", [PLAIN_FP16, STATIC, DYNAMIC, TENSORRT, INT4])
def test_a_graph_with_nothing_to_convert_is_refused(stage: Stage, tmp_path: Path) -> None:
    job = conversion(tmp_path)
    written(identity(), job.source)
    with pytest.raises(InputError, match="there is nothing to convert: the graph has no") as caught:
        stage.convert(replace(job, calibration=[{"x": np.eye(4, dtype=np.float32)}]))
    assert caught.value.hint == "leave `precision: fp32`"


def test_auto_needs_something_to_multiply(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no convolution and no matrix product"):
        method_for(written(identity(), tmp_path / "m.onnx"), Quantize())


@contextmanager
def no_file_above(size: int) -> Iterator[None]:
    """As a full disk: writing more bytes into a file fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("left", [2_000, 20_000], ids=["at once", "in the middle"])
@pytest.mark.parametrize(
    ("stage", "kind"),
    [(PLAIN_FP16, "ids"), (DYNAMIC, "ids"), (STATIC, "ids"), (TENSORRT, "ids"), (INT4, "ids")],
)
def test_a_full_disk_leaves_the_old_file(
    stage: Stage, kind: str, left: int, tmp_path: Path
) -> None:
    job = conversion(tmp_path, kind)
    written(small_products(width=128), job.source)
    written(b"old", job.target)
    with no_file_above(left), pytest.raises(WorldError, match="cannot write: File too large"):
        stage.convert(job)
    assert [path.name for path in job.target.parent.iterdir()] == ["model.onnx"]
    assert job.target.read_bytes() == b"old"


MEGABYTE = 1_000_000


@pytest.mark.parametrize("stage", [PLAIN_FP16, DYNAMIC, STATIC, TENSORRT, INT4])
def test_weights_of_a_large_model_lie_beside_it_before_and_after(
    stage: Stage, tmp_path: Path
) -> None:
    job = replace(conversion(tmp_path, "ids"), inline_bytes=MEGABYTE)
    model = onnx.load_from_string(small_products(width=1024))
    onnx.save(model, job.source, save_as_external_data=True, location="weights.bin")
    assert stage.convert(job)
    assert external_files(job.source) == ["weights.bin"]
    assert external_files(job.target) == ["model.onnx.data"]
    assert job.target.stat().st_size < 100_000
    moved = tmp_path / "moved"
    job.target.parent.rename(moved)
    exact, close = answers(job.source, ids(9)), answers(moved / "model.onnx", ids(9))
    assert np.corrcoef(exact.ravel(), close.ravel())[0, 1] > 0.9
    assert metadata(moved / "model.onnx")["mmctl.source_sha256"] != sha256_file(job.source)


@pytest.mark.parametrize(
    ("flags", "found"), [("sse4_2 avx2 fma", False), ("avx2 avx512_vnni", True)]
)
def test_vnni_is_read_from_the_cpu(flags: str, found: bool, tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text(f"model name\t: some\nflags\t\t: fpu {flags}\n")
    assert has_vnni(file) is found
    assert not has_vnni(tmp_path / "absent")
