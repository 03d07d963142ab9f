"""Networks of the repository as engines: files for TensorRT build, those for CPUs are refused.

TensorRT for RTX, which builds without a GPU, stands in for TensorRT.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from engine_files import spec

from mmctl.errors import InputError
from mmctl.exporters.accuracy.read import load_samples
from mmctl.exporters.precision import STAGES
from mmctl.exporters.precision.base import Batch, Conversion, Quantize
from mmctl.exporters.tensorrt.builders import InProcess
from mmctl.exporters.tensorrt.spec import PLAN
from mmctl.triton.profiles import Profile

pytestmark = [pytest.mark.exports, pytest.mark.filterwarnings("ignore")]
pytest.importorskip("torch")

LENGTHS = ((1, 8), (8, 32), (16, 128))
PROFILES = {
    "minilm": tuple(Profile(name, *LENGTHS) for name in ("input_ids", "attention_mask")),
    "efficientnet": (
        Profile("pixels", *((rows, 3, 224, 224) for rows in (1, 4, 8))),  # type: ignore[arg-type]
    ),
    "nsfw": (
        Profile("pixels", *((rows, 224, 224, 3) for rows in (1, 4, 8))),  # type: ignore[arg-type]
    ),
}
SAMPLES = {"efficientnet": "photos:calibration", "nsfw": "photos:nsfw_calibration"}
BATCHES = 2

Convert = Callable[[str, str], Path]


@pytest.fixture(scope="module")
def rtx() -> Any:
    return pytest.importorskip("tensorrt_rtx", reason="the `trt-check` extra is not installed")


@pytest.fixture(scope="module")
def batches(root: Path, sentences: list[Batch]) -> Callable[[str], Sequence[Batch]]:
    @functools.cache
    def draw(model: str) -> Sequence[Batch]:
        if model not in SAMPLES:
            return sentences[:BATCHES]
        return [s.inputs for s in load_samples(root, SAMPLES[model])[:BATCHES]]

    return draw


@pytest.fixture
def convert(
    exported: Callable[[str], Path],
    batches: Callable[[str], Sequence[Batch]],
    rtx: Any,
    tmp_path: Path,
) -> Convert:
    """A folder with model.onnx: the network in this precision."""

    def run(model: str, stage: str) -> Path:
        folder, work = tmp_path / "engine", tmp_path / "work"
        folder.mkdir()
        work.mkdir()
        target = folder / "model.onnx"
        job = Conversion(exported(model), target, work, batches(model), Quantize())
        STAGES[stage].convert(job)
        return folder

    return run


@pytest.mark.parametrize("model", PROFILES)
def test_the_file_for_tensorrt_becomes_an_engine(model: str, convert: Convert, rtx: Any) -> None:
    folder = convert(model, "int8-tensorrt")
    InProcess(rtx).build(spec(profiles=PROFILES[model]), folder)
    assert (folder / PLAN).read_bytes()[:4] == b"vtrt"


@pytest.mark.parametrize(
    ("model", "stage", "said"),
    [
        pytest.param("minilm", "int8-dynamic", "dynamically|symmetric", id="minilm"),
        pytest.param("efficientnet", "int8-static", "quantized|symmetric", id="efficientnet"),
        pytest.param("nsfw", "int8-static", "quantized|symmetric", id="nsfw"),
    ],
)
def test_the_file_for_cpus_is_refused_with_the_way_out(
    model: str, stage: str, said: str, convert: Convert, rtx: Any
) -> None:
    folder = convert(model, stage)
    with pytest.raises(InputError, match=said) as caught:
        InProcess(rtx).build(spec(profiles=PROFILES[model]), folder)
    assert "quantize: {tensorrt: true}" in (caught.value.hint or "")
    assert not (folder / PLAN).exists()
