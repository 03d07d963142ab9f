"""`mmctl infer`: exit codes, what is printed where, and what wrong input is told.

The server only speaks Triton's protocol and gives each input back as NAME_out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest
from fake_triton import FakeTriton, config, running

from mmctl.cli.app import main
from mmctl.tensors import Signature, TensorSpec, parse_type
from mmctl.triton.repository import Lock, render_lock

Infer = Callable[..., int]


@pytest.fixture(scope="module")
def triton() -> Iterator[FakeTriton]:
    tensors = {"text": ("TYPE_STRING", [1]), "x": ("TYPE_UINT8", [2])}
    with running(FakeTriton(config("echo", tensors, max_batch=2))) as fake:
        yield fake


@pytest.fixture
def server(triton: FakeTriton) -> FakeTriton:
    triton.failure = None
    triton.asked.clear()
    return triton


@pytest.fixture
def infer(server: FakeTriton, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Infer:
    """`mmctl infer echo ...` against the server, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return lambda *words: main(["infer", "echo", *words, "--target", server.address])


def test_the_answer_goes_to_stdout_and_the_time_to_stderr(
    infer: Infer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert infer("-i", "text=你好", "-i", "x=[1, 2]") == 0
    out, err = capsys.readouterr()
    assert out == "text_out  你好\nx_out     [1, 2]\n"
    assert re.fullmatch(r"\d+\.\d ms\n", err)


def test_json(infer: Infer, capsys: pytest.CaptureFixture[str]) -> None:
    assert infer("-i", "text=hi", "-i", "x=[1, 2]", "--json") == 0
    out, err = capsys.readouterr()
    answer = json.loads(out)
    assert answer.pop("ms") > 0
    assert answer == {
        "schema": 1,
        "outputs": {"text_out": ["hi"], "x_out": [[1, 2]]},
        "model": "echo",
        "version": 1,
        "provenance": None,
    }
    assert err == ""


def test_an_input_given_again_is_a_further_row(
    infer: Infer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert infer("-i", "text=a", "-i", "text=b", "-i", "x=[1, 2]", "-i", "x=[3, 4]") == 0
    rows = "row 1\ntext_out  a\nx_out     [1, 2]\n\nrow 2\ntext_out  b\nx_out     [3, 4]\n"
    assert capsys.readouterr().out == rows


def test_files(infer: Infer, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"\xff\xd8")
    np.save(tmp_path / "x.npy", np.array([1.0, 2.0]))
    assert infer("-i", "text=@a.jpg", "-i", "x=@x.npy") == 0
    assert capsys.readouterr().out == "text_out  <2 bytes>\nx_out     [1, 2]\n"


GOOD = ("-i", "text=a", "-i", "x=[1, 2]")
THREE_ROWS = ("-i", "x=[[1, 2], [3, 4], [5, 6]]", *["-i", "text=a"] * 3)


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        pytest.param(("-i", "text"), "`-i text`: no `=`", "write `-i NAME=VALUE`", id="no value"),
        pytest.param(("-i", "txt=a"), "no input `txt`", "did you mean `text`?", id="unknown input"),
        pytest.param(("-i", "text=a"), "no value for `x`", "it takes", id="missing input"),
        pytest.param((), "no value for `text`, `x`", "text: bytes, x: uint8[2]", id="no input"),
        pytest.param((*GOOD[:2], "-i", "x=[1, 300]"), "`300` does not fit uint8", "", id="300"),
        pytest.param((*GOOD[:2], "-i", "x=[1.5, 2]"), "1.5 is not a whole number", "", id="1.5"),
        pytest.param((*GOOD[:2], "-i", "x=[NaN, 2]"), "nan is not a whole number", "", id="NaN"),
        pytest.param((*GOOD[:2], "-i", 'x=["1", 2]'), "is text, and the tensor", "", id="text"),
        pytest.param((*GOOD[:2], "-i", "x=a"), "`-i x`: `a` is not JSON", "a list", id="no JSON"),
        pytest.param((*GOOD[:2], "-i", "x=[1]"), "shape [1] given, [rows,2]", "[2]", id="shape"),
        pytest.param((*GOOD, "-i", "text=b"), "numbers of rows: `text` 2, `x` 1", "", id="rows"),
        pytest.param(
            (*THREE_ROWS, "--show", "curl"),
            "3 rows given, one request takes 1 to 2",
            "split",
            id="too many rows",
        ),
        pytest.param(("-i", "text=@none", *GOOD[2:]), "none: no such file", "@@", id="no file"),
        pytest.param((*GOOD[:2], "-i", "x=@a.jpg"), "not a .npy file", "numpy.save", id="no npy"),
        pytest.param((*GOOD, "--sample", "spam"), "both given", "one of them", id="both ways"),
    ],
)
def test_wrong_input_is_exit_2_with_what_to_do(
    infer: Infer,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    message: str,
    hint: str,
) -> None:
    assert infer(*words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    error, _, told = err.partition("\n\nhint: ")
    assert error.startswith("error: ")
    assert message in error
    assert hint in told


def test_more_rows_than_the_model_takes_go_in_parts_and_come_back_as_one_answer(
    infer: Infer, server: FakeTriton, capsys: pytest.CaptureFixture[str]
) -> None:
    assert infer(*THREE_ROWS, "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["outputs"]["x_out"] == [[1, 2], [3, 4], [5, 6]]
    assert len(server.asked) == 2


def test_pickled_objects_in_a_npy_file_are_exit_2(
    infer: Infer, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    np.save(tmp_path / "x.npy", np.array([{}], dtype=object))
    assert infer(*GOOD[:2], "-i", "x=@x.npy") == 2
    assert "not an array that is safe to read" in capsys.readouterr().err


def test_an_unknown_model_is_exit_2_with_the_nearest_name(
    server: FakeTriton, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["infer", "ecko", "--target", server.address]) == 2
    assert capsys.readouterr().err == (
        f"error: {server.address}: no model `ecko`\n\nhint: did you mean `echo`?\n"
    )


def test_the_servers_own_error_is_exit_3_and_whole(
    infer: Infer, server: FakeTriton, capsys: pytest.CaptureFixture[str]
) -> None:
    server.failure = (grpc.StatusCode.INTERNAL, "boom\nFile 'model.py', line 7")
    assert infer(*GOOD) == 3
    assert capsys.readouterr().err == "error: model `echo`: boom\nFile 'model.py', line 7\n"


def test_a_server_that_is_gone_is_exit_3(capsys: pytest.CaptureFixture[str]) -> None:
    with running(FakeTriton()) as gone:
        pass
    assert main(["infer", "echo", "--target", f"grpc://{gone.address}"]) == 3
    assert f"error: {gone.address}: no Triton answers" in capsys.readouterr().err


def test_an_http_address_is_exit_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["infer", "echo", "--target", "http://127.0.0.1:8000"]) == 2
    assert "gRPC port is 8001" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("form", "start"),
    [("python", "import mmctl"), ("curl", "curl -sS http://"), ("perf_analyzer", "cat > echo.")],
)
def test_show_prints_and_sends_nothing(
    infer: Infer,
    server: FakeTriton,
    capsys: pytest.CaptureFixture[str],
    form: str,
    start: str,
) -> None:
    assert infer(*GOOD, "--show", form) == 0
    assert capsys.readouterr().out.startswith(start)
    assert not server.asked


def test_show_checks_the_input_too(infer: Infer, capsys: pytest.CaptureFixture[str]) -> None:
    assert infer("-i", "text=a", "--show", "curl") == 2
    assert capsys.readouterr().out == ""


@pytest.fixture
def in_workspace(workspace: Path, server: FakeTriton, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace with a pipeline `echo`, whose target `here` is the server."""
    (workspace / "mmctl.yaml").write_text(
        f'targets: {{here: {{url: "grpc://{server.address}"}}}}\ndefaults: {{target: here}}\n'
    )
    folder = workspace / "ensembles" / "echo"
    (folder / "samples").mkdir(parents=True)
    (folder / "pipeline.yaml").write_text("pipeline: echo\n")
    (folder / "samples" / "spam.json").write_text('{"inputs": {"text": "hi", "x": [1, 2]}}')
    monkeypatch.chdir(workspace)
    return workspace


@pytest.mark.usefixtures("in_workspace")
def test_a_sample_is_sent_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["infer", "echo", "--sample", "spam"]) == 0
    assert capsys.readouterr().out == "text_out  hi\nx_out     [1, 2]\n"
    assert main(["infer", "echo", "--sample", "spma"]) == 2
    assert "did you mean `spam`?" in capsys.readouterr().err


@pytest.mark.usefixtures("in_workspace")
def test_an_unknown_target_is_exit_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["infer", "echo", *GOOD, "--target", "prod"]) == 2
    assert "`prod` is not a target of mmctl.yaml" in capsys.readouterr().err


def test_a_photo_for_a_declared_string_is_exit_2(
    in_workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = in_workspace / "model_repository" / "echo"
    folder.mkdir(parents=True)
    declared = Signature((TensorSpec("text", parse_type("string")),), (), max_batch=1)
    (folder / "config.pbtxt").touch()
    (folder / "model.lock").write_text(render_lock(Lock(1, "key", declared, {})))
    (in_workspace / "a.jpg").write_bytes(b"\xff\xd8")
    assert main(["infer", "echo", "-i", "text=@a.jpg", "-i", "x=[1, 2]"]) == 2
    assert "input `text`: not UTF-8 text" in capsys.readouterr().err
