"""`mmctl compare`: what it refuses, each with one clear error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from model_folders import snapshot, write_model, write_python_model

from mmctl.cli.app import main
from mmctl.trials.compare import variants

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(workspace: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """`mmctl -C workspace compare ...` -> exit code, stdout, stderr."""

    def run_command(*words: str) -> tuple[int, str, str]:
        code = main(["-C", str(workspace), "compare", *words])
        return code, *capsys.readouterr()

    return run_command


@pytest.fixture
def net(workspace: Path) -> Path:
    """A model of ONNX whose file is not there: it is refused before anybody reads it."""
    write_model(workspace, "net", "source: {onnx: net.onnx}\nbatching: {max_batch: 8}\n")
    write_model(workspace, "lone", "source: {onnx: net.onnx}\nbatching: none\n")
    return workspace


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        pytest.param(
            ("nett",),
            "error: there is no model `nett`: model_repository/nett/model.yaml does not exist\n",
            "hint: did you mean `net`?\n",
            id="an unknown model, with the nearest",
        ),
        pytest.param(
            ("echo",),
            "error: model_repository/echo: a python source has no file to convert\n",
            "hint: compare models that are exported to ONNX\n",
            id="a model without a file",
        ),
        pytest.param(
            ("net", "--batch", "9"),
            "error: `net` takes at most 8 (`batching: {max_batch: 8}`), not 9\n",
            "",
            id="a batch beyond max_batch",
        ),
        pytest.param(
            ("lone", "--batch", "2"),
            "error: `lone` takes no batch, not 2\n",
            "",
            id="a batch without a batch axis",
        ),
        pytest.param(
            ("net",),
            "error: model_repository/net: `net.onnx` does not exist\n",
            "hint: paths in model.yaml are relative to its folder\n",
            id="a source that is not there",
        ),
    ],
)
def test_what_cannot_be_compared_is_one_clear_error(
    net: Path, run: Run, words: tuple[str, ...], error: str, hint: str
) -> None:
    write_python_model(net)
    before = snapshot(net)
    assert run(*words) == (2, "", f"{error}\n{hint}" if hint else error)
    assert snapshot(net) == before


def test_without_the_libraries_the_extra_is_named(
    net: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(variants, "NEEDS", ("a-package-that-nobody-made",))
    code, out, err = run("net")
    assert (code, out) == (2, "")
    assert err == (
        "error: comparing precisions needs the `export` extra, which is not installed\n\n"
        "hint: run `pip install 'mmctl[export]'`\n"
    )


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("net", "--rounds", "9"), id="too few rounds for an interval"),
        pytest.param(("net", "--batch", "0"), id="a batch of nothing"),
        pytest.param(("net", "--threads", "0"), id="no threads"),
        pytest.param(("net", "--objective", "beauty"), id="an unknown objective"),
        pytest.param((), id="no model"),
    ],
)
def test_options_out_of_range_are_wrong_input(net: Path, run: Run, words: tuple[str, ...]) -> None:
    assert run(*words)[0] == 2


def test_a_folder_is_no_report_which_is_told_before_anything_is_measured(
    net: Path, run: Run
) -> None:
    assert run("net", "--html", str(net)) == (
        2, "", f"error: {net} is a folder\n\nhint: name the file: `--html {net}/report.html`\n",
    )  # fmt: skip


def test_two_ways_to_print_are_one_too_many(net: Path, run: Run) -> None:
    assert run("net", "--json", "--markdown") == (
        2, "", "error: `--json` and `--markdown` both say what to print\n\nhint: choose one\n",
    )  # fmt: skip
