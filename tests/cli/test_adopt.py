"""`mmctl adopt`: from somebody's Triton repository to pipelines of a workspace, or not at all."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from model_folders import snapshot

from mmctl.cli.app import main

ECHO = """\
backend: "python"
max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: [ 3 ] }
output { name: "y" data_type: TYPE_FP32 dims: [ 3 ] }
"""
CODE = "class TritonPythonModel:\n    pass\n"


def ensemble(*steps: str, outputs: str = "y") -> str:
    return "\n".join(
        [
            'platform: "ensemble"',
            "max_batch_size: 8",
            'input { name: "x" data_type: TYPE_FP32 dims: [ 3 ] }',
            *(
                f'output {{ name: "{name}" data_type: TYPE_FP32 dims: [ 3 ] }}'
                for name in outputs.split()
            ),
            "ensemble_scheduling {",
            *steps,
            "}\n",
        ]
    )


def step(model: str, reads: str, writes: str, version: int = -1) -> str:
    return (
        f'  step {{ model_name: "{model}" model_version: {version} '
        f'input_map {{ key: "x" value: "{reads}" }} output_map {{ key: "y" value: "{writes}" }} }}'
    )


CHAIN = ensemble(step("echo", "x", "t"), step("echo", "t", "y"))
READ_INSIDE = ensemble(step("echo", "x", "mid"), step("echo", "mid", "y"), outputs="mid y")


def write_repository(folder: Path, **ensembles: str) -> Path:
    """A repository with the model `echo` and these ensembles."""
    (folder / "echo" / "1").mkdir(parents=True)
    (folder / "echo" / "config.pbtxt").write_text(ECHO)
    (folder / "echo" / "1" / "model.py").write_text(CODE)
    for name, config in ensembles.items():
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "config.pbtxt").write_text(config)
    return folder


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty workspace `space`; repositories of others may lie beside it."""
    space = tmp_path / "space"
    space.mkdir()
    (space / "mmctl.yaml").write_text("")
    monkeypatch.chdir(space)
    return space


def files(folder: Path) -> list[str]:
    """Every path but the private state."""
    found = (path.relative_to(folder) for path in folder.rglob("*"))
    return sorted(path.as_posix() for path in found if path.parts[0] != ".mmctl")


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path: content
        for path, (_, content) in snapshot(folder).items()
        if not path.startswith(".mmctl/")
    }


def test_an_ensemble_of_another_repository_becomes_a_pipeline_and_its_models_come_along(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    repository = write_repository(here.parent / "repo", flow=CHAIN)
    before = contents(repository)
    assert main(["adopt", "../repo", "--yes"]) == 0
    assert capsys.readouterr() == (
        "flow: ensembles/flow/pipeline.yaml, 2 nodes, equal to ../repo/flow/config.pbtxt\n"
        "echo: copied to model_repository/, 2 files, 0 kB\n"
        "next: mmctl build\n",
        "flow: compiled version 1\n",
    )
    assert (here / "ensembles" / "flow" / "pipeline.yaml").read_text() == (
        "# Says what the ensemble in adopted.pbtxt said. `mmctl adopt` wrote it and proved that it "
        "compiles\n"
        "# to an equal config.\n"
        "pipeline: flow\n"
        'inputs: {x: "fp32[3]"}\n'
        "nodes:\n"
        "  echo:   {model: echo, inputs: {x: x}}\n"
        "  echo_2: {model: echo, inputs: {x: echo.y}}\n"
        "outputs: {y: echo_2.y}\n"
    )
    assert (here / "ensembles" / "flow" / "adopted.pbtxt").read_text() == CHAIN
    assert (here / "model_repository" / "echo" / "1" / "model.py").read_text() == CODE
    assert contents(repository) == before
    assert main(["compile"]) == 0
    assert main(["build", "--check"]) == 0


def test_in_its_own_repository_the_compiled_folder_takes_the_place_of_the_original(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models = write_repository(here / "model_repository", flow=CHAIN)
    (models / "flow" / "1" / ".gitkeep").touch()
    echo = contents(models / "echo")
    assert main(["adopt", "model_repository", "--yes"]) == 0
    assert capsys.readouterr().out == (
        "flow: ensembles/flow/pipeline.yaml, 2 nodes, equal to model_repository/flow/config.pbtxt\n"
        "model_repository/flow: replaced by what the pipeline compiles to, its config kept as "
        "ensembles/flow/adopted.pbtxt\n"
        "next: mmctl build\n"
    )
    assert files(here) == [
        "ensembles",
        "ensembles/flow",
        "ensembles/flow/adopted.pbtxt",
        "ensembles/flow/pipeline.yaml",
        "mmctl.yaml",
        "model_repository",
        "model_repository/echo",
        "model_repository/echo/1",
        "model_repository/echo/1/model.py",
        "model_repository/echo/config.pbtxt",
        "model_repository/flow",
        "model_repository/flow/.mmctl.json",
        "model_repository/flow/1",
        "model_repository/flow/1/manifest.json",
        "model_repository/flow/config.pbtxt",
        "model_repository/flow/model.lock",
    ]
    assert (here / "ensembles" / "flow" / "adopted.pbtxt").read_text() == CHAIN
    assert contents(models / "echo") == echo
    assert main(["build", "--check"]) == 0


def test_a_copy_that_the_compiler_adds_is_told(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_repository(here.parent / "repo", flow=READ_INSIDE)
    assert main(["adopt", "../repo", "--yes"]) == 0
    assert (
        "  but for a step more, flow__echo__copy, which copies tensors: without it Triton answers "
        "`unexpected deadlock` to a request for some of the outputs\n"
    ) in capsys.readouterr().out


def test_ensembles_that_call_ensembles_become_pipelines_that_call_pipelines(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outer = ensemble(step("inner", "x", "t"), step("inner", "t", "y"))
    write_repository(here.parent / "repo", a_outer=outer, inner=CHAIN)
    assert main(["adopt", "../repo", "--yes"]) == 0
    told = [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()]
    assert told == ["inner", "a_outer", "echo", "next"]
    assert (here / "ensembles" / "inner").is_dir()
    assert main(["build", "--check"]) == 0


def test_only_the_named_become_pipelines_what_they_call_comes_as_it_is(here: Path) -> None:
    outer = ensemble(step("inner", "x", "y"))
    write_repository(here.parent / "repo", outer=outer, inner=CHAIN, other=CHAIN)
    assert main(["adopt", "../repo", "outer", "--yes"]) == 0
    assert os.listdir(here / "ensembles") == ["outer"]
    assert (here / "model_repository" / "inner" / "config.pbtxt").read_text() == CHAIN
    assert (here / "model_repository" / "inner" / "1").is_dir()
    assert main(["build", "--check"]) == 0


def test_a_second_run_adopts_what_came_since(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    repository = write_repository(here.parent / "repo", flow=CHAIN)
    assert main(["adopt", "../repo", "--yes"]) == 0
    (repository / "later" / "1").mkdir(parents=True)
    (repository / "later" / "config.pbtxt").write_text(ensemble(step("flow", "x", "y")))
    capsys.readouterr()
    assert main(["adopt", "../repo", "--yes"]) == 0
    assert capsys.readouterr().out == (
        "later: ensembles/later/pipeline.yaml, 1 node, equal to ../repo/later/config.pbtxt\n"
        "flow: adopted before\n"
        "next: mmctl build\n"
    )
    assert main(["adopt", "../repo", "--yes"]) == 0
    assert capsys.readouterr().out == (
        "flow: adopted before\nlater: adopted before\nnothing to adopt in ../repo\n"
    )
    assert main(["build", "--check"]) == 0


def test_a_dry_run_shows_the_files_and_writes_nothing(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_repository(here.parent / "repo", flow=CHAIN)
    assert main(["adopt", "../repo", "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines()[3:] == [
        "  | pipeline: flow",
        '  | inputs: {x: "fp32[3]"}',
        "  | nodes:",
        "  |   echo:   {model: echo, inputs: {x: x}}",
        "  |   echo_2: {model: echo, inputs: {x: echo.y}}",
        "  | outputs: {y: echo_2.y}",
        "echo: copied to model_repository/, 2 files, 0 kB",
    ]
    assert files(here) == ["mmctl.yaml"]


def test_one_that_cannot_be_adopted_keeps_all_from_being_written(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pinned = ensemble(step("echo", "x", "t", version=2), step("echo", "t", "y"))
    write_repository(here.parent / "repo", flow=CHAIN, old=pinned)
    assert main(["adopt", "../repo", "--yes"]) == 1
    assert capsys.readouterr() == (
        "",
        "error: nothing was written: `old` cannot be adopted\n"
        "../repo/old/config.pbtxt:6:29: step 0 pins version 2 of `echo`: pipeline.yaml pins none, "
        "mmctl serves each pipeline with the versions that it was built with\n"
        "  hint: write -1 and serve version 2 alone (version_policy of `echo`), or leave the "
        "ensemble as it is: in model_repository/ it is served, and pipelines can call it\n"
        "\n"
        "hint: adopt the others alone: mmctl adopt ../repo flow\n",
    )
    assert files(here) == ["mmctl.yaml"]


def test_json_has_what_was_written_and_what_was_refused(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_repository(
        here.parent / "repo", flow=READ_INSIDE, old=ensemble(step("echo", "x", "y", 2))
    )
    assert main(["adopt", "../repo", "--json", "--yes"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["schema"], found["written"]) == (1, False)
    [refused] = found["refused"]
    [difference] = refused["differences"]
    assert refused["ensemble"] == "old"
    assert difference["path"] == "../repo/old/config.pbtxt"
    assert (difference["line"], difference["column"]) == (6, 29)
    assert difference["field"] == "ensemble_scheduling.step[0].model_version"
    assert main(["adopt", "../repo", "flow", "--json", "--yes"]) == 0
    found = json.loads(capsys.readouterr().out)
    [adopted] = found["adopted"]
    assert found["written"]
    assert found["copied"][0]["model"] == "echo"
    assert (adopted["pipeline"], adopted["nodes"], adopted["copies"]) == (
        "flow",
        {"echo": "echo", "echo_2": "echo"},
        ["flow__echo__copy"],
    )
    assert adopted["text"] == (here / adopted["file"]).read_text()


def test_json_does_not_ask(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_repository(here.parent / "repo", flow=CHAIN)
    assert main(["adopt", "../repo", "--json"]) == 2
    assert capsys.readouterr().err == (
        "error: `--json` cannot ask\n\nhint: add `--yes`, or `--dry-run`\n"
    )


def test_without_a_terminal_nobody_can_be_asked(here: Path) -> None:
    write_repository(here.parent / "repo", flow=CHAIN)
    done = run(here, "adopt", "../repo")
    assert (done.returncode, done.stderr) == (
        2,
        "error: cannot ask: there is no terminal\n\nhint: add `--yes`, or `--dry-run`\n",
    )
    assert files(here) == ["mmctl.yaml"]


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1), ("\n", 1)])
def test_on_a_terminal_it_asks_after_the_plan(here: Path, answer: str, code: int) -> None:
    write_repository(here.parent / "repo", flow=CHAIN)
    ours, theirs = pty.openpty()
    try:
        os.write(ours, answer.encode())
        done = run(here, "adopt", "../repo", stdin=theirs)
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.stdout.startswith("flow: ensembles/flow/pipeline.yaml, 2 nodes")
    assert "write this? [y/N]" in done.stderr
    assert done.returncode == code
    assert (here / "ensembles" / "flow").is_dir() == (code == 0)


def run(
    folder: Path, *argv: str, stdin: int = subprocess.DEVNULL
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mmctl", *argv],
        cwd=folder,
        stdin=stdin,
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_a_workspace_it_says_how_to_make_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_repository(tmp_path / "repo", flow=CHAIN)
    monkeypatch.chdir(tmp_path)
    assert main(["adopt", "repo", "--yes"]) == 2
    assert "mmctl init" in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["repo"]


@pytest.mark.parametrize("own", [True, False])
def test_a_workspace_with_another_mistake_is_left_as_it_was(
    here: Path, capsys: pytest.CaptureFixture[str], own: bool
) -> None:
    place = here / "model_repository" if own else here.parent / "repo"
    write_repository(place, flow=CHAIN)
    other = here / "model_repository" / "other" / "config.pbtxt"
    other.parent.mkdir(parents=True)
    other.write_text("max_batch_size: many\n")
    before = files(here), contents(here)
    assert main(["adopt", str(place), "flow", "--yes"]) == 2
    assert "model_repository/other/config.pbtxt:1:17" in capsys.readouterr().err
    assert (files(here), contents(here)) == before


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("labels.txt", "would go: the folder of a pipeline is generated"),
        ("1/weights.bin", "would go: the folder of a pipeline is generated"),
        ("configs/gpu.pbtxt", "other configs of the ensemble: a pipeline has one"),
    ],
)
def test_files_that_would_be_lost_are_named(
    here: Path, capsys: pytest.CaptureFixture[str], name: str, why: str
) -> None:
    models = write_repository(here / "model_repository", flow=CHAIN)
    (models / "flow" / name).parent.mkdir(exist_ok=True)
    (models / "flow" / name).write_text("something")
    before = contents(here)
    assert main(["adopt", "model_repository", "--yes"]) == 1
    place = name.partition("/")[0]
    assert f"model_repository/flow/{place}:1:1: {why}\n" in capsys.readouterr().err
    assert contents(here) == before


@pytest.mark.parametrize("place", ["ensembles/flow", "model_repository/flow"])
def test_nothing_is_overwritten(here: Path, capsys: pytest.CaptureFixture[str], place: str) -> None:
    write_repository(here.parent / "repo", flow=CHAIN)
    (here / place).mkdir(parents=True)
    assert main(["adopt", "../repo", "--yes"]) == 2
    assert f"error: {place}: is there already" in capsys.readouterr().err


def test_the_place_of_a_copy_must_be_free(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_repository(here.parent / "repo", flow=READ_INSIDE)
    (here / "model_repository" / "flow__echo__copy").mkdir(parents=True)
    assert main(["adopt", "../repo", "--dry-run"]) == 2
    assert (
        "error: model_repository/flow__echo__copy: is there already, and `flow` needs a step of "
        "that name\n" in capsys.readouterr().err
    )


def test_a_model_that_is_there_already_must_be_the_same(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    repository = write_repository(here.parent / "repo", flow=CHAIN)
    shutil.copytree(repository / "echo", here / "model_repository" / "echo")
    assert main(["adopt", "../repo", "--yes", "--dry-run"]) == 0
    assert "copied" not in capsys.readouterr().out
    (here / "model_repository" / "echo" / "1" / "model.py").write_text("other = True\n")
    assert main(["adopt", "../repo", "--yes"]) == 2
    assert (
        "error: model_repository/echo: differs from ../repo/echo, which the ensembles call"
        in capsys.readouterr().err
    )


def test_a_copied_model_is_whole(here: Path) -> None:
    """Programs stay programs, empty folders stay, links are followed, Python's caches are not."""
    repository = write_repository(here.parent / "repo", flow=CHAIN)
    echo = repository / "echo"
    (echo / "program").write_text("#!/bin/sh\n")
    (echo / "program").chmod(0o755)
    (echo / "2").mkdir()
    (echo / "1" / "__pycache__").mkdir()
    (echo / "1" / "__pycache__" / "model.pyc").write_text("")
    (echo / "1" / "linked").symlink_to("../program")
    assert main(["adopt", "../repo", "--yes"]) == 0
    copy = here / "model_repository" / "echo"
    assert files(copy) == ["1", "1/linked", "1/model.py", "2", "config.pbtxt", "program"]
    assert os.access(copy / "program", os.X_OK)
    assert not (copy / "1" / "linked").is_symlink()
    assert copy.joinpath("program").stat().st_nlink == 1


def test_links_instead_of_copies_when_asked(here: Path) -> None:
    write_repository(here.parent / "repo", flow=CHAIN)
    assert main(["adopt", "../repo", "--yes", "--link"]) == 0
    file = Path("model_repository/echo/1/model.py")
    assert (here / file).samefile(here.parent / "repo/echo/1/model.py")


@pytest.mark.parametrize("target", ["..", "nowhere"])
def test_links_that_lead_round_or_nowhere_are_told(
    here: Path, capsys: pytest.CaptureFixture[str], target: str
) -> None:
    repository = write_repository(here.parent / "repo", flow=CHAIN)
    (repository / "echo" / "1" / "link").symlink_to(target)
    assert main(["adopt", "../repo", "--yes"]) == 2
    assert "repo/echo/1/link" in capsys.readouterr().err
    assert files(here) == ["mmctl.yaml"]


def test_models_that_code_calls_are_told_because_no_config_names_them(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    repository = write_repository(here.parent / "repo", flow=CHAIN)
    code = "import triton_python_backend_utils as pb\npb.InferenceRequest(model_name='other')\n"
    (repository / "echo" / "1" / "model.py").write_text(code)
    assert main(["adopt", "../repo", "--dry-run"]) == 0
    assert capsys.readouterr().out.endswith(
        "note: `echo` calls models from its code: no config names them, so copy those yourself\n"
    )


def test_a_version_that_clients_may_ask_for_is_told(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    repository = write_repository(here.parent / "repo", flow=CHAIN)
    (repository / "flow" / "1").rename(repository / "flow" / "4")
    assert main(["adopt", "../repo", "--dry-run"]) == 0
    assert capsys.readouterr().out.endswith(
        "note: `flow` starts again at version 1: a client that asks for version 4 by its number "
        "gets an error\n"
    )


def test_a_config_that_triton_completes_says_how_to_get_the_signature(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    repository = write_repository(here.parent / "repo", flow=CHAIN)
    (repository / "echo" / "config.pbtxt").write_text('backend: "python"\n')
    assert main(["adopt", "../repo", "--yes"]) == 1
    err = capsys.readouterr().err
    assert "the signature of `echo` is not known" in err
    assert (
        "write `input`, `output` and `max_batch_size` into ../repo/echo/config.pbtxt; a running "
        "Triton tells them at /v2/models/echo/config"
    ) in err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["nowhere"], "nowhere: no such folder"),
        (["../repo/echo"], "../repo/echo: no ensemble in it"),
        (["../repo", "flwo"], "../repo: there is no model `flwo`"),
        (["../repo", "echo"], "../repo/echo: is no ensemble"),
    ],
)
def test_wrong_words_are_told(
    here: Path, capsys: pytest.CaptureFixture[str], argv: list[str], message: str
) -> None:
    write_repository(here.parent / "repo", flow=CHAIN)
    assert main(["adopt", *argv, "--yes"]) == 2
    assert capsys.readouterr().err.startswith(f"error: {message}\n")


def test_an_ensemble_of_a_decoupled_model_is_one_itself_also_inside_another(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outer = ensemble(step("inner", "x", "y"))
    repository = write_repository(here.parent / "repo", outer=outer, inner=CHAIN)
    (repository / "echo" / "config.pbtxt").write_text(
        ECHO + "model_transaction_policy { decoupled: true }\n"
    )
    assert main(["adopt", "../repo", "outer", "--yes"]) == 1
    assert "`inner` is decoupled: it may answer a request many times" in capsys.readouterr().err


def test_ensembles_in_a_circle_are_told(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = ensemble(step("b", "x", "y")), ensemble(step("a", "x", "y"))
    write_repository(here.parent / "repo", a=one, b=other)
    assert main(["adopt", "../repo", "--yes"]) == 2
    assert "ensembles call each other in a circle: " in capsys.readouterr().err


def test_a_config_that_cannot_be_read_may_be_an_ensemble_and_is_told(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_repository(here.parent / "repo", flow=CHAIN, template="max_batch_size: ${max_batch}\n")
    assert main(["adopt", "../repo", "--yes"]) == 0
    assert (
        "note: `template`: its config cannot be read; see `mmctl check ../repo/template`\n"
        in capsys.readouterr().out
    )


def test_a_key_that_is_given_twice_is_not_what_was_meant(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    twice = CHAIN.replace(
        'output_map { key: "y" value: "t" }',
        'output_map { key: "y" value: "t" } output_map { key: "y" value: "u" }',
    )
    write_repository(here.parent / "repo", flow=twice)
    assert main(["adopt", "../repo", "--yes"]) == 2
    assert "`output_map` has the key `y` twice" in capsys.readouterr().err


def test_what_mmctl_made_is_not_adopted(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_repository(here / "model_repository", flow=CHAIN)
    assert main(["adopt", "model_repository", "--yes"]) == 0
    capsys.readouterr()
    assert main(["adopt", "model_repository", "--yes"]) == 0
    assert capsys.readouterr().out == "nothing to adopt in model_repository\n"
    assert main(["adopt", "model_repository", "flow", "--yes"]) == 2
    assert (
        "error: model_repository/flow: mmctl made it from ensembles/flow/pipeline.yaml"
        in capsys.readouterr().err
    )


def test_every_known_ensemble_is_adopted_or_told_why_not(
    shared_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is adopted compiles to what is committed; whatever is not leaves nothing behind."""
    configs = sorted((shared_dir / "cases").glob("*/model_repository*/*/config.pbtxt"))
    found = {c.parent.parent for c in configs if "ensemble_scheduling" in c.read_text()}
    codes = {}
    for number, repository in enumerate(sorted(found)):
        space = tmp_path / str(number)
        space.mkdir()
        (space / "mmctl.yaml").write_text("")
        monkeypatch.chdir(space)
        name = repository.relative_to(shared_dir / "cases").as_posix()
        codes[name] = main(["adopt", str(repository), "--yes"])
        if codes[name] == 0:
            assert main(["build", "--check"]) == 0, name
        else:
            assert files(space) == ["mmctl.yaml"], name
    assert set(codes.values()) <= {0, 1, 2}
    assert codes["070_subset_of_outputs/model_repository"] == 0
    assert codes["127_ensemble_in_ensemble_ok/model_repository"] == 0
    assert codes["073_pinned_version_not_served/model_repository_fixed"] == 1
