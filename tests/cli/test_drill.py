"""`mmctl drill` where no server is needed: what is refused before one starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mmctl.cli.app import main
from mmctl.cli.drill import render_table
from mmctl.trials.rows import Row, Verdict


@pytest.fixture
def pipeline(workspace: Path) -> Path:
    folder = workspace / "ensembles" / "tag"
    folder.mkdir(parents=True)
    (folder / "pipeline.yaml").write_text("pipeline: tag\n")
    return folder


def error_of(workspace: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["-C", str(workspace), "drill", *arguments]) == 2
    return capsys.readouterr().err


def test_an_unknown_pipeline_is_told_with_the_nearest(
    workspace: Path, pipeline: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = error_of(workspace, capsys, "tagg")
    assert "error: no pipeline `tagg`" in said
    assert "tag" in said.partition("hint: ")[2]


def test_without_samples_there_is_nothing_to_send(
    workspace: Path, pipeline: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = error_of(workspace, capsys, "tag")
    assert "error: ensembles/tag/samples: no samples, so there is nothing to send" in said
    assert "hint: write ensembles/tag/samples/NAME.json, one request each" in said


def test_an_unknown_fault_is_refused(
    workspace: Path, pipeline: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "'sleepy'" in error_of(workspace, capsys, "tag", "--fault", "sleepy")


def test_a_broken_sample_is_told_before_anything_starts(
    workspace: Path, pipeline: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (pipeline / "samples").mkdir()
    (pipeline / "samples" / "a.json").write_text(json.dumps({"input": {}}))
    assert "a.json: unknown key `input`" in error_of(workspace, capsys, "tag")


def test_the_table_has_a_row_for_each_promise() -> None:
    rows = [
        Row("", "side by side", "the same answers", "the same answers", Verdict.KEPT),
        Row("a", "slow", "error that names `a`", "an answer", Verdict.BROKEN, 12.4, 200.0),
    ]
    assert render_table(rows) == [
        "node  fault         promised              got               ms  bound  verdict",
        "-     side by side  the same answers      the same answers   -      -  kept",
        "a     slow          error that names `a`  an answer         12    200  broken",
    ]


def test_a_long_reason_is_cut_in_the_table() -> None:
    row = Row("a", "slow", "error", "because " * 9, Verdict.BROKEN)
    assert ("because " * 8)[:59] + "…" in render_table([row])[1]
