"""`mmctl compare` on real small networks: variants made, measured and gone again."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from model_folders import snapshot, write_model
from onnx_samples import onnx_model

from mmctl.cli.app import main
from mmctl.trials.compare.data import DRAWN

pytestmark = pytest.mark.exports

WIDTH = 256
YAML = """\
source: {onnx: net.onnx}
batching: {max_batch: 4}
"""

Compare = Callable[..., dict[str, Any]]


def products(lead: tuple[str, ...] = ("batch",)) -> bytes:
    """Three matrix products of random weights, normalised between: nothing overflows."""
    draw = np.random.default_rng(0)
    shape = ("FLOAT", [*lead, WIDTH])
    weights = {
        name: (draw.standard_normal((WIDTH, WIDTH)) / WIDTH**0.5).astype(np.float32)
        for name in ("first", "second", "third")
    }
    nodes: list[tuple[str, list[str], list[str], dict[str, Any]]] = [
        ("MatMul", ["x", "first"], ["a"], {}),
        ("Relu", ["a"], ["b"], {}),
        ("MatMul", ["b", "second"], ["c"], {}),
        ("Relu", ["c"], ["d"], {}),
        ("MatMul", ["d", "third"], ["y"], {}),
    ]
    return onnx_model({"x": shape}, {"y": shape}, nodes, weights)


def run_compare(root: Path, *words: str) -> dict[str, Any]:
    """What `mmctl compare net --json ...` prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert main(["-C", str(root), "compare", "net", "--json", *words]) == 0
    answer: dict[str, Any] = json.loads(printed.getvalue())
    return answer


@pytest.fixture
def compare(workspace: Path) -> Compare:
    """`mmctl compare` on the products, unless another file was written."""
    write_model(workspace, "net", YAML, net_onnx=products())
    return partial(run_compare, workspace)


@dataclass(frozen=True)
class Run:
    """One plain comparison of the products: snapshots of its workspace around it, what it printed,
    its report, and what it left in the temporary folder.
    """

    before: dict[str, tuple[int, bytes]]
    after: dict[str, tuple[int, bytes]]
    answer: dict[str, Any]
    html: str
    left: list[Path]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Run:
    root, temporary, out = (tmp_path_factory.mktemp(name) for name in ("space", "temporary", "out"))
    (root / "mmctl.yaml").write_text("targets: {}\n")
    write_model(root, "net", YAML, net_onnx=products())
    before = snapshot(root)
    with pytest.MonkeyPatch.context() as patch:
        use_temporary(temporary, patch)
        answer = run_compare(root, "--threads", "1", "--html", str(out / "report.html"))
    html = (out / "report.html").read_text()
    return Run(before, snapshot(root), answer, html, list(temporary.iterdir()))


def use_temporary(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Temporary files of this process and of its children go there."""
    patch.setenv("TMPDIR", str(folder))
    patch.setattr(tempfile, "tempdir", None)


def test_nothing_changes_and_nothing_is_left(plain: Run) -> None:
    assert plain.after == plain.before
    assert plain.left == []


def test_variants_are_made_and_measured(plain: Run) -> None:
    assert plain.answer["schema"] == 1
    fp32, fp16, int8 = plain.answer["variants"]
    assert [v["variant"] for v in (fp32, fp16, int8)] == ["fp32", "fp16", "int8"]
    assert int8["title"] == "INT8, dynamic"
    assert fp16["ratios"]["size"] == pytest.approx(0.5, abs=0.05)
    assert int8["ratios"]["size"] == pytest.approx(0.25, abs=0.05)
    for variant in plain.answer["variants"]:
        assert variant["at_one"]["p50_ms"]["median"] > 0
        assert variant["at_one"]["requests"] >= 10
        assert variant["load_ms"]["median"] > 0
        assert variant["memory_bytes"] > 0
        assert variant["at_best"]["batch"] in (1, 2, 4)


def test_the_work_is_counted_for_one_row(plain: Run) -> None:
    assert plain.answer["work"] == {
        "gflops": pytest.approx(2 * 3 * WIDTH**2 / 1e9),
        "class": "light",
        "macs": {"MatMul": 3 * WIDTH**2},
    }


def test_without_data_accuracy_is_that_on_drawn_inputs_and_a_note_says_so(plain: Run) -> None:
    for variant in plain.answer["variants"]:
        (accuracy,) = variant["accuracy"]
        assert accuracy["metric"] == "cosine of y"
        assert 0.9 < accuracy["low"] <= accuracy["value"] <= accuracy["high"] < 1.001
    assert DRAWN in plain.answer["notes"]


def test_no_engine_is_measured_without_a_gpu_and_a_note_says_so(plain: Run) -> None:
    if shutil.which("nvidia-smi"):
        pytest.skip("there may be a GPU here")
    assert "no TensorRT engine: there is no GPU here" in plain.answer["notes"]


def test_the_report_is_written_beside_the_table(plain: Run) -> None:
    assert plain.html.startswith("<!doctype html>")
    assert plain.answer["circumstances"]["date"] in plain.html


SAMPLES = """\
import numpy as np


def held_out():
    draw = np.random.default_rng(1)
    yield {"x": draw.standard_normal((200, 256)).astype(np.float32)}
"""


@pytest.mark.parametrize(
    ("least", "within"),
    [
        pytest.param("0.9", True, id="a limit that INT8 keeps"),
        pytest.param("0.9999999", False, id="one that it does not keep"),
    ],
)
def test_declared_samples_and_limits_decide_what_may_be_recommended(
    workspace: Path, compare: Compare, least: str, within: bool
) -> None:
    verify = f'verify: {{data: "samples:held_out", metric: cosine, min: {least}}}\n'
    write_model(workspace, "net", YAML + verify, net_onnx=products())
    (workspace / "calibration").mkdir()
    (workspace / "calibration" / "samples.py").write_text(SAMPLES)
    answer = compare("--objective", "size")
    (accuracy,) = answer["variants"][2]["accuracy"]
    assert accuracy["within"] is within
    assert accuracy["limit"] == f"at least {float(least):.4g}"
    assert answer["recommended"]["variant"] == ("int8" if within else "fp32")
    assert DRAWN not in answer["notes"]


def test_all_has_both_ways_to_int8_and_int4_as_an_experiment(compare: Compare) -> None:
    variants = {v["variant"]: v for v in compare("--all", "--batch", "4")["variants"]}
    assert list(variants) == ["fp32", "fp16", "int8-static", "int8-dynamic", "int4"]
    assert [name for name, v in variants.items() if v["experimental"]] == ["int4"]
    assert {v["at_best"]["batch"] for v in variants.values()} == {4}


def test_a_model_without_a_batch_axis_is_compared_request_by_request(
    workspace: Path, compare: Compare
) -> None:
    yaml = "source: {onnx: net.onnx}\nbatching: none\n"
    write_model(workspace, "net", yaml, net_onnx=products(lead=()))
    assert {v["at_best"]["batch"] for v in compare()["variants"]} == {0}


def test_what_cannot_be_converted_is_a_note_and_no_row(workspace: Path, compare: Compare) -> None:
    shape = ("FLOAT", ["batch", 8])
    relu = onnx_model({"x": shape}, {"y": shape}, [("Relu", ["x"], ["y"], {})])
    write_model(workspace, "net", YAML, net_onnx=relu)
    answer = compare("--all")
    assert [v["variant"] for v in answer["variants"]] == ["fp32"]
    assert len([note for note in answer["notes"] if "there is nothing to convert" in note]) == 4
    assert answer["recommended"]["variant"] == "fp32"


def _end_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def test_an_interrupt_leaves_no_file_and_no_process(
    workspace: Path, tmp_path_factory: pytest.TempPathFactory, root: Path
) -> None:
    temporary = tmp_path_factory.mktemp("temporary")
    write_model(workspace, "net", YAML, net_onnx=products())
    before = snapshot(workspace)
    words = ["-C", str(workspace), "compare", "net", "--rounds", "100000"]
    command = [sys.executable, "-m", "mmctl", *words]
    paths = os.pathsep.join([str(root / "tools"), *filter(None, [os.environ.get("PYTHONPATH")])])
    child = subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": paths, "TMPDIR": str(temporary)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with child, contextlib.ExitStack() as stack:
        stack.callback(_end_group, child.pid)
        assert child.stderr is not None
        for line in child.stderr:
            if "take turns" in line:
                break
        time.sleep(1)
        os.killpg(child.pid, signal.SIGINT)  # as the terminal does: to everyone in the group
        assert child.wait(30) == 130
        assert child.stderr.read() == ""
        with pytest.raises(ProcessLookupError):
            os.killpg(child.pid, 0)
    assert snapshot(workspace) == before
    assert list(temporary.iterdir()) == []
