"""What a metric found, as the table shows it; and what TensorRT and the processor are asked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx_samples import identity

from mmctl.exporters.accuracy.judge import Judged
from mmctl.exporters.accuracy.metrics import Estimate
from mmctl.loadtest.machine import cpu_name
from mmctl.trials.compare.accuracy import accuracy_of
from mmctl.trials.compare.machine import cpu_flags
from mmctl.trials.compare.sessions import open_on, profile
from mmctl.trials.compare.table import Accuracy


def test_a_metric_against_fp32_is_shown_as_it_is() -> None:
    judged = Judged("agreement", "logits", Estimate(0.992, 0.985, 0.996, 700), 0.98)
    assert accuracy_of(judged) == Accuracy(
        "agreement of logits", 0.992, 0.985, 0.996, within=True, limit="at least 0.98"
    )


def test_what_is_lost_on_labels_is_taken_off_the_score_of_fp32() -> None:
    judged = Judged("accuracy", "logits", Estimate(2, 1, 4, 700), 1, is_drop=True, fp32=0.97)
    found = accuracy_of(judged)
    assert (found.value, found.low, found.high) == pytest.approx((0.95, 0.93, 0.96))
    assert (found.within, found.limit) == (False, "at most 1 points below FP32's 0.97")


def test_data_that_is_too_small_to_tell_stays_a_doubt() -> None:
    judged = Judged("cosine", "vector", Estimate(0.999, 0.99, 1, 7), 0.99)
    assert accuracy_of(judged).doubt == "7 held-out rows are too few to tell"


@pytest.mark.filterwarnings("ignore:Specified provider")
def test_what_quietly_runs_on_the_processor_is_not_taken_for_tensorrt(tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    if "TensorrtExecutionProvider" in runtime.get_available_providers():
        pytest.skip("ONNX Runtime has TensorRT here")
    path = tmp_path / "m.onnx"
    path.write_bytes(identity())
    row = {"x": np.ones((1, 4), np.float32)}
    assert open_on("cpu", path, 1, row, 4).run(None, row)[0].shape == (1, 4)
    with pytest.raises(RuntimeError, match="and the processor would take over"):
        open_on("tensorrt", path, 1, row, 4)


@pytest.mark.parametrize(
    ("most", "low", "high"),
    [
        pytest.param(8, "ids:1x16,mask:1x16", "ids:8x16,mask:8x16", id="every batch it may get"),
        pytest.param(0, "ids:3x16,mask:3x16", "ids:3x16,mask:3x16", id="no batch axis: as it is"),
    ],
)
def test_an_engine_is_built_for_the_shapes_that_it_will_see(most: int, low: str, high: str) -> None:
    ids = np.zeros((3, 16), np.int64)
    assert profile({"ids": ids, "mask": ids}, most) == {
        "trt_profile_min_shapes": low,
        "trt_profile_opt_shapes": high,
        "trt_profile_max_shapes": high,
    }


CPUINFO = "model name\t: A Processor\nflags\t\t: fpu avx2 avx512_vnni sse\n"


def test_the_processor_is_named_with_the_flags_that_matter() -> None:
    assert (cpu_name(CPUINFO), cpu_flags(CPUINFO)) == ("A Processor", ["avx2", "avx512_vnni"])
    assert cpu_flags("Features : fp asimd\n") == []
