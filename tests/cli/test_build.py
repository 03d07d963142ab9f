"""`mmctl build`, `compile` and `--check` as a person and as continuous integration run them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mmctl.cli.app import main

MODEL = """
name: "echo"
backend: "python"
max_batch_size: 4
input { name: "x" data_type: TYPE_FP32 dims: 3 }
output { name: "y" data_type: TYPE_FP32 dims: 3 }
"""

PIPELINE = """
pipeline: same
inputs: {x: "fp32[3]"}
nodes:
  first: {model: echo, inputs: {x: x}}
  second: {model: echo, inputs: {x: first.y}}
outputs: {y: second.y}
"""

WITHOUT_TORCH = """
import sys
for name in ("torch", "onnx", "onnxruntime", "transformers"):
    sys.modules[name] = None
from mmctl.cli.app import main
sys.exit(main(["build", "--check"]))
"""


@pytest.fixture
def there(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (workspace / "model_repository" / "echo" / "1").mkdir(parents=True)
    (workspace / "model_repository" / "echo" / "1" / "model.py").write_text("# the user's own")
    (workspace / "model_repository" / "echo" / "config.pbtxt").write_text(MODEL)
    (workspace / "ensembles" / "same").mkdir(parents=True)
    (workspace / "ensembles" / "same" / "pipeline.yaml").write_text(PIPELINE)
    monkeypatch.chdir(workspace)
    return workspace


def test_build_tells_the_form_and_check_is_content_with_it(
    there: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["build"]) == 0
    out = capsys.readouterr()
    assert out.out == "same: ensemble, version 1, made of same\n"
    assert main(["build", "--check"]) == 0
    assert capsys.readouterr().out == "all committed files are up to date\n"


def test_check_exits_1_and_names_the_stale_file(
    there: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["build"])
    (there / "model_repository" / "same" / "config.pbtxt").write_text('name: "same"\n')
    capsys.readouterr()
    assert main(["build", "--check"]) == 1
    out = capsys.readouterr()
    assert out.out == ("model_repository/same/config.pbtxt: differs from what would be generated\n")
    assert "mmctl build" in out.err
    assert main(["build", "--check", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["schema"] == 1


def test_explain_says_why_the_form(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", "--explain"]) == 0
    assert "because" in capsys.readouterr().out


def test_a_mistake_is_told_at_its_place_with_exit_2(
    there: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = there / "ensembles" / "same" / "pipeline.yaml"
    file.write_text(PIPELINE.replace("first.y", "frist.y"))
    assert main(["compile"]) == 2
    assert capsys.readouterr() == (
        "",
        "error: ensembles/same/pipeline.yaml:6:37: Y106 `frist.y`: there is no node `frist`\n"
        "  hint: did you mean `first`?\n",
    )
    assert not (there / "model_repository" / "same").exists()


def test_a_form_that_cannot_keep_a_policy_is_refused_with_exit_2(
    there: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = there / "ensembles" / "same" / "pipeline.yaml"
    text = PIPELINE.replace("{x: x}}", "{x: x}, timeout_ms: 50}")
    file.write_text(f"form: ensemble\n{text}")
    assert main(["build"]) == 2
    assert capsys.readouterr() == (
        "",
        "error: ensembles/same/pipeline.yaml:1:7: Y117 `form: ensemble` cannot keep "
        "`first.timeout_ms`\n  hint: remove `form`, or `first.timeout_ms`\n",
    )
    assert not (there / "model_repository" / "same").exists()


def test_an_unexported_model_is_told_with_the_command_that_exports_it(
    there: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(there / "model_repository" / "echo")
    (there / "model_repository" / "echo").mkdir()
    (there / "model_repository" / "echo" / "model.yaml").write_text(
        'source: {torch: "source:build"}\n'
    )
    (there / "model_repository" / "echo" / "source.py").write_text("")
    assert main(["compile"]) == 2
    err = capsys.readouterr().err
    assert "`echo`: never exported" in err
    assert "mmctl export echo" in err


def test_the_repository_is_up_to_date_without_torch_and_weights(root: Path, tmp_path: Path) -> None:
    """On a clean clone: no version folders, no packages, no export libraries; in seconds."""
    ignore = shutil.ignore_patterns("[0-9]*", "__pycache__")
    shutil.copytree(root / "model_repository", tmp_path / "model_repository", ignore=ignore)
    shutil.copytree(root / "ensembles", tmp_path / "ensembles", ignore=ignore)
    shutil.copytree(root / "calibration", tmp_path / "calibration", ignore=ignore)
    shutil.copy(root / "mmctl.yaml", tmp_path)
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "all committed files are up to date\n")
    assert time.monotonic() - start < 4, "the promise is 2 s"


def test_help_starts_without_anything_heavy() -> None:
    code = (
        "import sys; from mmctl.cli.app import main; main(['--help']);"
        "heavy = {'numpy', 'pydantic', 'tritonclient', 'torch', 'onnx', 'onnxruntime', 'rich'};"
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_command_that_the_readme_names_exists(root: Path) -> None:
    import re

    from typer.main import get_command

    from mmctl.cli.app import app

    known = set(get_command(app).commands)  # type: ignore[attr-defined]
    text = (root / "README.md").read_text()
    named = set(re.findall(r"^ {4,}(?:\$ )?mmctl ([a-z0-9]+)", text, flags=re.MULTILINE))
    named |= set(re.findall(r"`mmctl ([a-z0-9]+)", text))
    assert named
    assert named <= known
