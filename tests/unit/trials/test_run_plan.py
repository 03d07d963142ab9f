"""What of a repository is run, in which order, and the private copy of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from run_repositories import ZEROS, Models, files_of, io

from mmctl.lint.repository import Repository, Target, read_repository
from mmctl.trials.runcheck.folder import copy_model, drop_warm_up, read_code
from mmctl.trials.runcheck.plan import Plan, plan_run


@pytest.fixture
def models(tmp_path: Path) -> Models:
    return Models(tmp_path / "repository")


def read(models: Models) -> Repository:
    return read_repository(models.root, "", Target())[0]


def planned(models: Models, names: Sequence[str] = ()) -> Plan:
    repository = read(models)
    code = {name: read_code(model) for name, model in repository.models.items()}
    return plan_run(repository, code, {"python", "onnxruntime"}, names)


def test_called_models_come_first(models: Models) -> None:
    models.ensemble("a", io(), "b: x=x -> y=t", "z: x=t -> y=y")
    models.ensemble("b", io(), "y: x=x -> y=y")
    models.python("bls", "return self.call('a')")
    models.python("y")
    models.python("z")
    plan = planned(models)
    assert plan.order == ("y", "b", "z", "a", "bls")
    assert plan.calls["bls"] == {"a", "b", "y", "z"}


def test_models_that_call_each_other_are_all_run(models: Models) -> None:
    models.python("a", "return self.call('b')")
    models.python("b", "return self.call('a')")
    models.ensemble("c", io(), "c: x=x -> y=y")
    assert set(planned(models).order) == {"a", "b", "c"}


def test_a_plan_of_mmctl_names_the_models_that_it_calls(models: Models) -> None:
    folder = models.python("a")
    (folder / "1" / "plan.json").write_text('{"nodes": [{"model": "b"}]}')
    models.python("b")
    assert planned(models).order == ("b", "a")


def test_only_what_is_asked_for_and_what_it_calls_is_loaded(models: Models) -> None:
    models.ensemble("flow", io(), "a: x=x -> y=y")
    models.python("a")
    models.python("b")
    plan = planned(models, ["flow"])
    assert (plan.order, plan.asked) == (("a", "flow"), ("flow",))


def test_what_the_server_has_no_backend_for_is_left_out_with_all_that_calls_it(
    models: Models,
) -> None:
    models.write("plan", f'platform: "tensorrt_plan"\n{io()}')
    models.python("a")
    models.ensemble("flow", io(), "a: x=x -> y=t", "plan: x=t -> y=y")
    models.ensemble("outer", io(), "flow: x=x -> y=y")
    plan = planned(models)
    assert plan.order == ("a",)
    assert plan.left_out == {
        "plan": "its backend `tensorrt` is not on the embedded server",
        "flow": "its step `plan` is not run",
        "outer": "its step `flow` is not run",
    }


def test_a_name_that_the_load_api_cannot_take_is_left_out(models: Models) -> None:
    models.python("my model")
    plan = planned(models)
    assert plan.order == ()
    assert "cannot stand in an address" in plan.left_out["my model"]


def test_folders_that_are_no_models_are_passed_over(models: Models) -> None:
    models.python("a")
    (models.root / "common").mkdir()
    assert planned(models).order == ("a",)


@pytest.mark.parametrize(
    ("config", "code", "complete"),
    [
        pytest.param(io(), "", False, id="whole"),
        pytest.param("max_batch_size: 4\n", "", True, id="no tensors"),
        pytest.param('input [{name: "x"}] output [{name: "y"}]', "", True, id="no types"),
        pytest.param(io(), "def auto_complete_config(config): pass", True, id="by its own code"),
        pytest.param("input [{", "", False, id="cannot be read"),
    ],
)
def test_configs_are_completed_only_where_one_needs_it(
    models: Models, config: str, code: str, complete: bool
) -> None:
    models.code("a", code, config)
    models.ensemble("flow", io(), "a: x=x -> y=y")
    assert planned(models).complete is complete


def test_a_copy_has_its_own_files_and_large_ones_are_linked(models: Models, tmp_path: Path) -> None:
    folder = models.python("a")
    (folder / "1" / "weights.bin").write_bytes(bytes(9 * 1024 * 1024))
    (folder / "1" / "__pycache__").mkdir()
    (folder / "1" / "round").symlink_to(folder)
    os.mkfifo(folder / "1" / "pipe")
    root = tmp_path / "copy"
    assert not copy_model(read(models).models["a"], root)
    copied = {str(p.relative_to(root / "a")) for p in (root / "a").rglob("*") if p.is_file()}
    assert copied == {"config.pbtxt", "1/model.py", "1/weights.bin"}
    assert (root / "a" / "1" / "weights.bin").stat().st_nlink == 2
    assert (root / "a" / "config.pbtxt").stat().st_nlink == 1


@pytest.mark.parametrize(
    ("group", "moved"),
    [
        ("kind: KIND_GPU count: 2 gpus: [0, 1]", True),
        ("kind: KIND_AUTO gpus: [0]", True),
        ("kind: KIND_AUTO", False),
        ("kind: KIND_CPU count: 2", False),
    ],
)
def test_instances_on_gpus_are_moved_in_the_copy_alone(
    models: Models, tmp_path: Path, group: str, moved: bool
) -> None:
    models.python("a", config=io(more=f"instance_group [{{{group}}}]"))
    before, root = files_of(models.root), tmp_path / "copy"
    assert copy_model(read(models).models["a"], root) is moved
    config = (root / "a" / "config.pbtxt").read_text()
    assert "gpus" not in config
    assert ("KIND_CPU" in config) is (moved or "KIND_CPU" in group)
    assert files_of(models.root) == before


def test_a_warm_up_can_be_dropped_and_a_broken_text_stays(models: Models, tmp_path: Path) -> None:
    models.python("a", config=io(more=ZEROS))
    models.python("b", config="input [{" + ZEROS)
    root = tmp_path / "copy"
    for model in read(models).models.values():
        copy_model(model, root)
        drop_warm_up(root, model.name)
    assert "model_warmup" not in (root / "a" / "config.pbtxt").read_text()
    assert "model_warmup" in (root / "b" / "config.pbtxt").read_text()
