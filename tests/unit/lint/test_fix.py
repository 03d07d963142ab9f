"""Repairs that have one right answer: what they change, what they leave, how they are written."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from file_trees import Files
from lint_repositories import ensemble, model, repository

from mmctl.errors import InputError
from mmctl.lint.checker import check_repository
from mmctl.lint.fix import FixedModel, fix_repository, plan_fixes, render_diff, write_fixes
from mmctl.lint.repository import Repository

BACKEND = 'backend: "python"\n'
TENSORS = 'input { name: "x" data_type: TYPE_FP32 dims: [ 4 ] }\n'
BATCH = f"{BACKEND}max_batch_size: 8\n"
CODE = {"m/1/model.py": ""}
A = {"a/config.pbtxt": model("x:FP32[4]", "y:FP32[4]"), "a/1/model.py": ""}


def codes(models: Sequence[FixedModel]) -> list[str]:
    return [fix.code for fixed in models for fix in fixed.fixes]


def fixed_text(folder: Path, config: str, files: Files = CODE) -> str:
    """The config of the model `m` as it is after its repairs."""
    for fixed in fix_repository(repository(folder, {"m/config.pbtxt": config, **files})):
        if fixed.before.name == "m" and fixed.after.config is not None:
            return fixed.after.config.text.content
    return config


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        pytest.param(
            f"{BACKEND}{TENSORS.replace('FP32', 'FLOAT32')}",
            f"{BACKEND}{TENSORS}",
            id="C001 a word of another library",
        ),
        pytest.param(
            f"{BACKEND}{TENSORS.replace('TYPE_FP32', 'fp32')}",
            f"{BACKEND}{TENSORS}",
            id="C001 a word without its family",
        ),
        pytest.param(
            BACKEND + TENSORS.replace("TYPE_FP32", '"TYPE_FP32"'),
            f"{BACKEND}{TENSORS}",
            id="C001 a word in quotes",
        ),
        pytest.param(
            f"{BACKEND}{TENSORS.replace('FP32', 'BYTES')}{TENSORS.replace('FP32', 'BYTES')}",
            f"{BACKEND}{TENSORS.replace('FP32', 'STRING')}{TENSORS.replace('FP32', 'STRING')}",
            id="C001 each place",
        ),
        pytest.param(
            f"# of the ranker\nname: 'ranker'  # its name\n{BACKEND}",
            f'# of the ranker\nname: "m"  # its name\n{BACKEND}',
            id="C005 the folder keeps its name",
        ),
        pytest.param('platform: "python"', 'backend: "python"', id="C006 a backend as platform"),
        pytest.param('platform: "py"', 'backend: "python"', id="C006 a short word as platform"),
        pytest.param('backend: "Python"', 'backend: "python"', id="C006 capitals"),
        pytest.param(
            f"{BATCH}dynamic_batching {{ preferred_batch_size: [ 4, 8, 16 ] }}",
            f"{BATCH}dynamic_batching {{ preferred_batch_size: [ 4, 8 ] }}",
            id="B003 one size too many",
        ),
        pytest.param(
            f"{BATCH}dynamic_batching {{\n  preferred_batch_size: 16,\n"
            "  max_queue_delay_microseconds: 5\n}",
            f"{BATCH}dynamic_batching {{\n  max_queue_delay_microseconds: 5\n}}",
            id="B003 the only size",
        ),
        pytest.param(
            f"{BATCH}dynamic_batching {{ preferred_batch_size: [16] }}",
            f"{BATCH}dynamic_batching {{ }}",
            id="B003 the only size in its line",
        ),
        pytest.param(
            f'name: "other"\nplatform: "python"\n{TENSORS.replace("FP32", "FLOAT")}',
            f'name: "m"\n{BACKEND}{TENSORS}',
            id="one after the other",
        ),
        pytest.param(
            f'name: "other"\r\n{BACKEND}'.replace("\n", "\r\n").replace("\r\r", "\r"),
            f'name: "m"\r\n{BACKEND}'.replace("\n", "\r\n").replace("\r\r", "\r"),
            id="line ends stay as they are",
        ),
    ],
)
def test_a_repair(tmp_path: Path, wrong: str, right: str) -> None:
    assert fixed_text(tmp_path, wrong) == right


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(f"{BACKEND}{TENSORS.replace('FP32', 'FP8')}", id="a type that could be any"),
        pytest.param('backend: "onnxruntme"', id="a backend that might be another"),
        pytest.param('platform: "tensorrt_plan" backend: "onnxruntime"', id="two that disagree"),
        pytest.param(
            f"{BACKEND}dynamic_batching {{ preferred_batch_size: 4 }}", id="no maximum to go by"
        ),
        pytest.param(
            f"{BACKEND}max_batch_size: 8 dynamic_batching {{ preferred_batch_size: 0 }}",
            id="a size 0",
        ),
        pytest.param(
            f"{BACKEND}max_batch_size: 8 dynamic_batching {{ preferred_batch_size: [\n"
            "16 # as measured\n] }",
            id="a size with a remark",
        ),
        pytest.param(f"{BACKEND}max_batch_size: -1", id="a rule without a repair"),
        pytest.param(f"{BACKEND}{TENSORS}", id="nothing wrong"),
    ],
)
def test_what_has_no_one_right_answer_is_left(tmp_path: Path, config: str) -> None:
    assert fixed_text(tmp_path, config) == config


def test_a_platform_of_its_backend(tmp_path: Path) -> None:
    wrong = 'platform: "onnxruntime"\nbackend: "onnxruntime"\n'
    right = 'platform: "onnxruntime_onnx"\nbackend: "onnxruntime"\n'
    files = {"m/config.pbtxt": wrong, "m/1/model.onnx": ""}
    (fixed,) = fix_repository(repository(tmp_path, files))
    assert fixed.after.config is not None
    assert fixed.after.config.text.content == right


def flow(step: str) -> Files:
    config = (
        'platform: "ensemble"\n'
        'input { name: "x" data_type: TYPE_FP32 dims: [ 4 ] }\n'
        'output { name: "y" data_type: TYPE_FP32 dims: [ 4 ] }\n'
        f"ensemble_scheduling {{\n{step}}}\n"
    )
    return {"m/config.pbtxt": config, "m/1/.gitkeep": "", **A}


MAPS = 'input_map { key: "x" value: "x" } output_map { key: "y" value: "y" }'


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        pytest.param(
            f'step {{ model_name: "a" {MAPS} }}\n',
            f'step {{ model_name: "a" model_version: -1 {MAPS} }}\n',
            id="in one line",
        ),
        pytest.param(
            f'  step [\n    {{\n      model_name: "a"\n      {MAPS}\n    }}\n  ]\n',
            f'  step [\n    {{\n      model_name: "a"\n      model_version: -1\n      {MAPS}\n'
            "    }\n  ]\n",
            id="in a line of its own",
        ),
        pytest.param(
            f'  step {{\n    model_name: "a",\n    {MAPS}\n  }}\n',
            f'  step {{\n    model_name: "a",\n    model_version: -1\n    {MAPS}\n  }}\n',
            id="behind a comma",
        ),
    ],
)
def test_a_step_without_a_version_means_the_latest(tmp_path: Path, wrong: str, right: str) -> None:
    fixed = fix_repository(repository(tmp_path, flow(wrong)))
    assert codes(fixed) == ["E014"]
    assert fixed[0].after.config is not None
    assert fixed[0].after.config.text.content == flow(right)["m/config.pbtxt"]


def test_a_pinned_version_is_left(tmp_path: Path) -> None:
    files = flow(f'step {{ model_name: "a" model_version: 7 {MAPS} }}\n')
    assert fix_repository(repository(tmp_path, files)) == ()


FLOW = ensemble("x:FP32[4]", "y:FP32[4]", "a x=x -> y=y")


@pytest.mark.parametrize(
    ("more", "name"), [("", "1"), ("version_policy { specific { versions: 3 } }\n", "3")]
)
def test_an_ensemble_gets_its_empty_folder(tmp_path: Path, more: str, name: str) -> None:
    files = {"flow/config.pbtxt": f"{FLOW}{more}", **A}
    fixed = fix_repository(repository(tmp_path, files))
    assert render_diff(fixed) == f"--- /dev/null\n+++ flow/{name}/.gitkeep\n"
    write_fixes(fixed)
    assert (tmp_path / "flow" / name / ".gitkeep").read_bytes() == b""
    assert errors(repository(tmp_path, {})) == []


def test_a_model_without_its_folder_is_left(tmp_path: Path) -> None:
    assert fix_repository(repository(tmp_path, {"m/config.pbtxt": BACKEND})) == ()


def errors(read: Repository) -> list[str]:
    return [f.text() for f in check_repository(read) if f.severity == "error"]


WRONG = {"m/config.pbtxt": f'name: "other"\n{BACKEND}{TENSORS}', **CODE}


def test_the_diff_shows_what_is_written(tmp_path: Path) -> None:
    fixed = fix_repository(repository(tmp_path, WRONG))
    assert render_diff(fixed) == (
        "--- m/config.pbtxt\n+++ m/config.pbtxt\n@@ -1,3 +1,3 @@\n"
        f'-name: "other"\n+name: "m"\n {BACKEND} {TENSORS}'
    )
    assert (tmp_path / "m/config.pbtxt").read_text() == WRONG["m/config.pbtxt"]
    write_fixes(fixed)
    assert (tmp_path / "m/config.pbtxt").read_text() == f'name: "m"\n{BACKEND}{TENSORS}'
    assert errors(repository(tmp_path, {})) == []


def test_a_last_line_without_an_end(tmp_path: Path) -> None:
    fixed = fix_repository(repository(tmp_path, {"m/config.pbtxt": 'platform: "python"', **CODE}))
    assert render_diff(fixed).splitlines()[3:] == [
        '-platform: "python"',
        "\\ No newline at end of file",
        '+backend: "python"',
        "\\ No newline at end of file",
    ]


def test_only_the_models_that_were_asked_for(tmp_path: Path) -> None:
    read = repository(
        tmp_path, {**WRONG, "n/config.pbtxt": 'platform: "python"', "n/1/model.py": ""}
    )
    assert [fixed.before.name for fixed in fix_repository(read, ["n"])] == ["n"]


def test_a_file_that_was_changed_meanwhile_is_left(tmp_path: Path) -> None:
    fixed = fix_repository(repository(tmp_path, WRONG))
    (tmp_path / "m/config.pbtxt").write_text(BACKEND)
    with pytest.raises(InputError, match="changed meanwhile"):
        write_fixes(fixed)
    assert (tmp_path / "m/config.pbtxt").read_text() == BACKEND


def test_a_template_that_was_filled_is_left(tmp_path: Path) -> None:
    from mmctl.lint.repository import Target, read_repository

    (tmp_path / "m/1").mkdir(parents=True)
    (tmp_path / "m/1/model.py").touch()
    (tmp_path / "m/config.pbtxt").write_text(f'name: "${{name}}"\n{BACKEND}')
    read, _ = read_repository(tmp_path, ".", Target(), {"name": "other"})
    assert [f.code for f in check_repository(read)] == ["C005"]
    assert fix_repository(read) == ()


def test_what_mmctl_generates_is_left(tmp_path: Path) -> None:
    assert fix_repository(repository(tmp_path, {**WRONG, "m/.mmctl.json": "{}"})) == ()


def test_a_byte_order_mark_stays(tmp_path: Path) -> None:
    text = b"\xef\xbb\xbf" + WRONG["m/config.pbtxt"].encode()
    write_fixes(fix_repository(repository(tmp_path, {**CODE, "m/config.pbtxt": text})))
    assert (tmp_path / "m/config.pbtxt").read_bytes() == text.replace(b"other", b"m")


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    read = repository(tmp_path / "models", CODE)
    (tmp_path / "shared.pbtxt").write_text(str(WRONG["m/config.pbtxt"]))
    os.symlink(tmp_path / "shared.pbtxt", tmp_path / "models/m/config.pbtxt")
    read = repository(tmp_path / "models", {})
    write_fixes(fix_repository(read))
    assert (tmp_path / "models/m/config.pbtxt").is_symlink()
    assert (tmp_path / "shared.pbtxt").read_text().startswith('name: "m"')


def test_a_repair_that_would_bring_another_error_is_left(tmp_path: Path) -> None:
    """With a folder, the ensemble would have a version that its policy does not serve."""
    files = {"flow/config.pbtxt": f"{FLOW}version_policy {{ latest {{ }} }}\n", **A}
    assert fix_repository(repository(tmp_path, files)) == ()


def test_errors_that_only_a_known_backend_shows_do_not_count(tmp_path: Path) -> None:
    files = {"m/config.pbtxt": 'platform: "python"', "m/1/other.py": ""}
    fixed = fix_repository(repository(tmp_path, files))
    assert codes(fixed) == ["C006"]
    write_fixes(fixed)
    assert ["R005" in line for line in errors(repository(tmp_path, {}))] == [True]


def test_planning_needs_no_file(tmp_path: Path) -> None:
    read = repository(tmp_path, WRONG)
    (tmp_path / "m/config.pbtxt").unlink()
    findings = check_repository(read)
    assert [(fix.code, fix.text) for fix in plan_fixes(read.models["m"], findings)] == [  # type: ignore[union-attr]
        ("C005", 'name: "m"')
    ]
    assert plan_fixes(read.models["m"], []) == ()
