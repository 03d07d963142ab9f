"""`--html` of `mmctl bench` and `mmctl trace`: what is refused before a load, and what is written.

The server only speaks Triton's protocol and gives each input back as NAME_out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_triton import FakeTriton, config, running

from mmctl.cli.app import main
from mmctl.loadtest.report import plots


@pytest.fixture
def words(workspace: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[str]]:
    """`bench ADDRESS echo` in a workspace with a sample."""
    monkeypatch.chdir(workspace)
    monkeypatch.setattr("mmctl.loadtest.result.LATE_MS", 1000)
    (tmp_path / "samples").mkdir()
    (tmp_path / "samples" / "a.json").write_text(json.dumps({"inputs": {"text": "a"}}))
    triton = FakeTriton(config("echo", {"text": ("TYPE_STRING", [1])}, max_batch=2))
    triton.loaded = ["echo"]
    with running(triton):
        yield ["bench", triton.address, "echo", f"--samples={tmp_path / 'samples'}"]


def test_the_page_has_the_result_that_json_has(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "report.html"
    load = ["--profile=concurrency:1..2", "--seconds=0.5"]
    assert main([*words, *load, f"--html={page}", "--json"]) == 0
    said = capsys.readouterr()
    html = page.read_text()
    document = html.split('<script type="application/json" id="results">')[1].split("</script>")[0]
    assert json.loads(document) == {"bench": json.loads(said.out)}
    assert "report.html is written" in said.err


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--html=."], "is a folder"),
        (["--html=none/report.html"], "cannot be written"),
        (["--trace=10"], "`--trace` is for the page"),
    ],
)
def test_a_page_that_cannot_be_written_is_told_before_the_load(
    words: list[str], options: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, *options]) == 2
    assert told in capsys.readouterr().err


def test_without_matplotlib_it_says_which_extra_brings_it(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(plots, "find_spec", lambda name: None)
    assert main([*words, f"--html={tmp_path / 'report.html'}"]) == 2
    assert "pip install 'mmctl[report]'" in capsys.readouterr().err
    assert not (tmp_path / "report.html").exists()
