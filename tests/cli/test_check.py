"""`mmctl check` as people type it: what it prints, and its exit codes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from file_trees import write

from mmctl.cli.app import main
from mmctl.lint import RULES

GOOD = """name: "scorer"
backend: "python"
max_batch_size: 0
input [ { name: "x" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 4 ] } ]
"""
BAD = GOOD.replace("TYPE_FP32", "TYPE_FLOAT32", 1)
LINE = "scorer/config.pbtxt:4:32: C001 `data_type` has no word `TYPE_FLOAT32`"


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one model, right as it is; the current folder is around it."""
    write(tmp_path, {"models/scorer/config.pbtxt": GOOD, "models/scorer/1/model.py": ""})
    monkeypatch.chdir(tmp_path)
    return tmp_path / "models"


def spoil(repository: Path) -> None:
    write(repository, {"scorer/config.pbtxt": BAD})


def test_nothing_wrong(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "models"]) == 0
    out, err = capsys.readouterr()
    assert (out, err) == ("", "nothing wrong in 1 model\n")


def test_what_a_workspace_says_of_caches_is_checked_too(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(repository.parent, {"mmctl.yaml": "cache:\n  models:\n    tag: {ttl: 5}\n"})
    assert main(["check", "."]) == 1
    out = capsys.readouterr().out
    assert "mmctl.yaml:3:11: Y003 unknown key `ttl`\n  hint: did you mean `ttl_s`?\n" in out


def test_settings_of_a_cache_for_a_model_that_is_not_there_are_a_warning(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = "source: {onnx: model.onnx}\n"
    write(repository.parent, {"model_repository/scorer/model.yaml": model})
    write(
        repository.parent,
        {"mmctl.yaml": "cache:\n  models:\n    scorer: {ttl_s: 5}\n    scorre: {ttl_s: 5}\n"},
    )
    main(["check", ".", "--select", "Y006"])
    out = capsys.readouterr().out
    assert (
        "mmctl.yaml:4:5: Y006 warning: `scorre` is neither a model nor a pipeline of this workspace"
        in out
    )
    assert "hint: did you mean `scorer`?" in out
    assert "mmctl.yaml:3" not in out


def test_a_finding_is_a_line_and_a_hint(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil(repository)
    assert main(["check", "models"]) == 1
    out, err = capsys.readouterr()
    assert out == f"models/{LINE}\n  hint: write `TYPE_FP32`\n"
    assert err == "1 error in 1 model\n"


@pytest.mark.parametrize(
    ("folder", "path", "shown"),
    [
        (".", "models", "models/scorer"),
        (".", "models/", "models/scorer"),
        (".", "models/scorer", "models/scorer"),
        (".", "models/scorer/config.pbtxt", "models/scorer"),
        ("models", ".", "scorer"),
        ("models", "scorer", "scorer"),
    ],
)
def test_places_are_named_as_the_path_was_typed(
    repository: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    folder: str,
    path: str,
    shown: str,
) -> None:
    spoil(repository)
    monkeypatch.chdir(folder)
    assert main(["check", path]) == 1
    assert capsys.readouterr().out.startswith(f"{shown}/config.pbtxt:4:32: C001 ")


def test_a_path_named_twice_is_told_once(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil(repository)
    assert main(["check", "models", "models/scorer", "models/../models"]) == 1
    out, err = capsys.readouterr()
    assert (out.count("C001"), err) == (1, "1 error in 1 model\n")


def test_a_path_named_twice_is_repaired_once(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil(repository)
    assert main(["check", "--fix", "--yes", "models", "models/scorer"]) == 0
    assert capsys.readouterr().err.count("+++ models/scorer/config.pbtxt") == 1


def test_a_config_by_another_name_is_read_as_text(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("draft.pbtxt").write_text(BAD)
    assert main(["check", "draft.pbtxt"]) == 1
    assert capsys.readouterr().out.startswith("draft.pbtxt:4:32: C001 ")


def test_a_finding_is_one_line_whatever_a_folder_is_called(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "two\nlines\x1b[31m\udcff"
    (repository / "scorer").rename(repository / name)
    write(repository, {f"{name}/config.pbtxt": BAD})
    assert main(["check", "models", "--select", "C001"]) == 1
    line, hint = capsys.readouterr().out.splitlines()
    assert line.startswith(r"models/two\nlines\x1b[31m\udcff/config.pbtxt:4:32: C001 ")
    assert hint == "  hint: write `TYPE_FP32`"


def test_sarif_names_a_file_by_its_bytes(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (repository / "scorer").rename(repository / "caf\udce9 1")
    assert main(["check", "models", "--sarif"]) == 1
    out = capsys.readouterr().out
    assert '"uri": "models/caf%E9%201' in out
    json.loads(out)["runs"][0]["results"][0]["message"]["text"].encode()  # text that can be sent


def test_json_has_every_finding(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spoil(repository)
    assert main(["check", "models", "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer == {
        "schema": 1,
        "findings": [
            {
                "code": "C001",
                "severity": "error",
                "path": "models/scorer/config.pbtxt",
                "line": 4,
                "column": 32,
                "message": "`data_type` has no word `TYPE_FLOAT32`",
                "hint": "write `TYPE_FP32`",
            }
        ],
    }


def test_sarif_says_the_same(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spoil(repository)
    assert main(["check", "models", "--sarif"]) == 1
    log = json.loads(capsys.readouterr().out)
    (run,) = log["runs"]
    (rule,) = run["tool"]["driver"]["rules"]
    (result,) = run["results"]
    assert log["version"] == "2.1.0"
    assert (rule["id"], rule["defaultConfiguration"]) == ("C001", {"level": "error"})
    assert (result["ruleId"], result["ruleIndex"], result["level"]) == ("C001", 0, "error")
    assert result["locations"] == [
        {
            "physicalLocation": {
                "artifactLocation": {"uri": "models/scorer/config.pbtxt"},
                "region": {"startLine": 4, "startColumn": 32},
            }
        }
    ]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--select", "C"], 1),
        (["--select", "c001,E"], 1),
        (["--select", "E"], 0),
        (["--ignore", "C001"], 0),
        (["--ignore", "E", "--ignore", "C002"], 1),
        (["--select", "C", "--ignore", "C001"], 0),
    ],
)
def test_codes_are_chosen_by_how_they_begin(
    repository: Path, options: list[str], code: int
) -> None:
    spoil(repository)
    assert main(["check", "models", *options]) == code


def test_a_placeholder_is_filled_with_set(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(repository, {"scorer/config.pbtxt": GOOD.replace(": 0", ": ${max_batch}")})
    assert main(["check", "models"]) == 1
    assert "C002 placeholder `max_batch` is not filled" in capsys.readouterr().out
    assert main(["check", "models", "--set", "max_batch=0"]) == 0


def test_a_field_newer_than_the_server(repository: Path) -> None:
    write(repository, {"scorer/config.pbtxt": GOOD + 'runtime: "libtriton_python.so"\n'})
    assert main(["check", "models"]) == 0
    assert main(["check", "models", "--triton", "24.01"]) == 0
    assert main(["check", "models", "--triton", "23.12"]) == 1


def test_strict_makes_a_warning_a_mistake(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(repository, {"scorer/config.pbtxt": GOOD + "max_batch_size: 0\n"})
    assert main(["check", "models"]) == 0
    out, err = capsys.readouterr()
    assert "config.pbtxt:6:1: C003 warning: `max_batch_size` stands here twice" in out
    assert err == "1 warning in 1 model\n"
    assert main(["check", "models", "--strict"]) == 1


def test_the_workspace_is_checked_where_no_path_is_named(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(
        workspace,
        {
            "model_repository/scorer/config.pbtxt": GOOD,
            "model_repository/scorer/1/model.py": "",
            "ensembles/flow/pipeline.yaml": "pipeline: flow\ninputs: {x: fp32}\n"
            "nodes: {a: {model: nobody, inputs: {x: x}}}\noutputs: {y: a.y}\n",
        },
    )
    assert main(["-C", str(workspace), "check"]) == 1
    out, err = capsys.readouterr()
    assert "ensembles/flow/pipeline.yaml:3:20: Y105" in out
    assert err == "1 error in 1 model and 1 pipeline\n"


def test_a_pipeline_is_named_by_its_file_or_folder(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "pipeline: flow\ninputs: {x: fp32}\nnodes: {}\noutputs: {}\n"
    write(workspace, {"ensembles/flow/pipeline.yaml": text})
    for path in ("ensembles/flow", "ensembles/flow/pipeline.yaml"):
        assert main(["check", str(workspace / path)]) == 1
        assert "ensembles/flow/pipeline.yaml:" in capsys.readouterr().out


def test_a_source_is_named_as_what_it_belongs_to(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "pipeline: flow\ninputs: {x: fp32}\nnodes: {}\noutputs: {}\n"
    write(
        workspace,
        {"ensembles/flow/pipeline.yaml": text, "model_repository/scorer/model.yaml": "x: 1\n"},
    )
    for path, looked in (
        ("ensembles", "in 1 pipeline\n"),
        ("mmctl.yaml", "in 1 model and 1 pipeline\n"),
        ("model_repository/scorer/model.yaml", "in 1 model\n"),
    ):
        main(["check", str(workspace / path)])
        out, err = capsys.readouterr()
        assert err.endswith(looked)
        assert "C004" not in out


def test_a_model_that_was_never_exported_is_no_mistake(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(workspace, {"model_repository/scorer/model.yaml": "x: 1\n"})
    assert main(["-C", str(workspace), "check"]) == 0
    assert "model.yaml:1:1: C007 warning: `scorer` was never exported" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (["nowhere"], "nowhere: there is no such file or folder", ""),
        (["empty"], "empty: no models in it", "name a model repository"),
        (["empty/" + "x" * 300], "empty/xxx", ""),
        (["models/scorer/1/model.py"], "models/scorer/1/model.py: neither a config", "folder"),
        ([], "", "name what to check, `mmctl check REPOSITORY`"),
        (["models", "--triton", "soon"], "`soon` is not a Triton release", "write year and month"),
        (["models", "--set", "x"], "`--set x`: no NAME=VALUE", "write --set"),
        (["models", "--input", "m=x.json"], "`--input` is for `--run`", "add `--run`"),
        (["models", "--select", "X9"], "`--select`: no code begins with `X9`", ""),
        (["models", "--json", "--sarif"], "`--json` and `--sarif` exclude each other", "one of"),
        (["--explain", "C0O1"], "`C0O1` is no code of a finding", "did you mean `C"),
    ],
)
def test_wrong_input_is_one_clear_error(
    repository: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
    hint: str,
) -> None:
    Path("empty").mkdir()
    assert main(["check", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"error: {message}")
    assert hint in err


def test_an_unknown_target_is_wrong_input(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["-C", str(workspace), "check", "--target", "prod"]) == 2
    assert "`prod` is not a target of mmctl.yaml" in capsys.readouterr().err


@pytest.mark.parametrize("code", sorted(RULES))
def test_every_code_is_explained_with_an_example(
    code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "--explain", code.lower()]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"{code}: {RULES[code].title} (")
    assert "\nwrong:\n    " in text
    assert "\nright:\n    " in text


HOSTILE = {
    "binary": bytes(range(256)) * 8,
    "not UTF-8": 'name: "caf\xe9"'.encode("latin-1"),
    "a byte order mark": b"\xef\xbb\xbf" + GOOD.encode(),
    "deep": b"input {" * 5000,
    "huge": b"# " + b"x" * (5 * 1024 * 1024),
    "one endless line": b"name: " + b'"x" ' * 200_000,
    "empty": b"",
    "zeros": b"\0" * 4096,
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE.keys())
def test_broken_files_are_findings(
    repository: Path, capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    (repository / "scorer/config.pbtxt").write_bytes(content)
    assert main(["check", "models"]) in (0, 1)
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err


def test_what_cannot_be_read_is_a_finding(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = repository / "scorer/config.pbtxt"
    config.unlink()
    os.mkfifo(config)
    (repository / "around").symlink_to(repository)
    (repository / "circle").symlink_to(repository / "circle")
    (repository / "nowhere").symlink_to("/nowhere")
    assert main(["check", "models"]) == 1
    assert (
        "scorer/config.pbtxt:1:1: R001 cannot be read: not a regular file"
        in capsys.readouterr().out
    )


@contextmanager
def no_superuser() -> Iterator[None]:
    """For root, who may read everything: be somebody else for a while."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def test_a_folder_without_permission_is_a_finding(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        write(Path(folder), {"models/scorer/config.pbtxt": GOOD, "models/other/config.pbtxt": BAD})
        (Path(folder) / "models/scorer").chmod(0)
        monkeypatch.chdir(folder)
        with no_superuser():
            assert main(["check", "models"]) == 1
        (Path(folder) / "models/scorer").chmod(0o755)
    out = capsys.readouterr().out
    assert [line for line in out.splitlines() if "models/scorer" in line] == [
        "models/scorer:1:1: R001 cannot be read: Permission denied"
    ]
    assert "models/other/config.pbtxt:4:32: C001" in out


def test_a_version_without_permission_is_not_said_to_be_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        write(Path(folder), {"models/scorer/config.pbtxt": GOOD, "models/scorer/1/model.py": ""})
        (Path(folder) / "models/scorer/1").chmod(0)
        monkeypatch.chdir(folder)
        with no_superuser():
            assert main(["check", "models"]) == 1
        (Path(folder) / "models/scorer/1").chmod(0o755)
    found = capsys.readouterr().out
    assert found.splitlines()[0] == "models/scorer/1:1:1: R001 cannot be read: Permission denied"
    assert "R002" not in found


def test_a_file_in_a_closed_folder_is_wrong_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        write(Path(folder), {"scorer/config.pbtxt": GOOD})
        (Path(folder) / "scorer").chmod(0)
        monkeypatch.chdir(folder)
        with no_superuser():
            assert main(["check", "scorer/config.pbtxt"]) == 2
        (Path(folder) / "scorer").chmod(0o755)
    assert "scorer/config.pbtxt: cannot be read: Permission denied" in capsys.readouterr().err
