"""`mmctl tune` where no server is needed: what is refused before one starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from sleepers import write_sleepers

from mmctl.cli.app import main


@pytest.fixture
def naps(tmp_path: Path) -> Path:
    write_sleepers(tmp_path, {"nap": (0.01, 0.0)}, {"two": {"one": ("nap", ["x"], "")}})
    return tmp_path


def error_of(workspace: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["-C", str(workspace), "tune", *arguments]) == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "error", "hint"),
    [
        (("two", "--slo", "p98=5ms"), "`p98=5ms` is no promise on latency", "p99=50ms"),
        (("two", "--slo", "fast"), "`fast` is no promise on latency", "p50, p90"),
        (("tow", "--slo", "p99=5ms"), "no pipeline or model `tow`", "two"),
        (("two", "--slo", "p99=5ms", "--cost"), "does not say what serving costs", "per_hour"),
    ],
)
def test_bad_input_is_one_clear_error(
    naps: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    error: str,
    hint: str,
) -> None:
    said = error_of(naps, capsys, *arguments)
    assert error in said
    assert hint in said.partition("hint: ")[2]


def test_without_samples_there_is_nothing_to_send(
    naps: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (naps / "ensembles/two/samples/one.json").unlink()
    said = error_of(naps, capsys, "two", "--slo", "p99=5ms")
    assert "no samples, so there is nothing to send" in said


def test_a_promise_has_to_be_given(naps: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--slo" in error_of(naps, capsys, "two")


def test_prices_that_are_none_are_told_at_their_place(
    naps: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (naps / "mmctl.yaml").write_text("cost: {per_hour: 0}\n")
    assert "mmctl.yaml:1:18" in error_of(naps, capsys, "two", "--slo", "p99=5ms", "--cost")
