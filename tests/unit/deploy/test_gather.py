"""What is to be served: from a workspace that was built, and from what a target held before."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from deploy_worlds import MemoryServer, MemoryTree

from mmctl.building.build import build
from mmctl.deploy.deployment import Place, plan_back, plan_forward, plan_promotion
from mmctl.deploy.gather import Gathered, gather, gather_back
from mmctl.deploy.ledger import What, entry
from mmctl.deploy.plan import plan_deploy
from mmctl.deploy.state import ServerState, Share, settle, with_share
from mmctl.deploy.steps import Move
from mmctl.deploy.tree import LocalTree
from mmctl.errors import InputError, Refused
from mmctl.lint.repository import Target
from mmctl.triton.pbtxt import parse_config
from mmctl.workspace import Workspace, read_workspace

FILES = {
    "model_repository/echo/config.pbtxt": """
        name: "echo" backend: "python" max_batch_size: 4
        input { name: "x" data_type: TYPE_FP32 dims: 3 }
        output { name: "y" data_type: TYPE_FP32 dims: 3 }
    """,
    "model_repository/echo/1/model.py": "class TritonPythonModel:\n    def execute(self, r): ...\n",
    "ensembles/twice/pipeline.yaml": """
pipeline: twice
inputs: {x: "fp32[3]"}
nodes:
  double: {step: double, inputs: {x: x}, outputs: {y: "fp32[3]"}}
  echo: {model: echo, inputs: {x: double.y}}
outputs: {y: echo.y}
    """,
    "ensembles/twice/steps.py": "def double(x):\n    return {'y': x * 2}\n",
    "ensembles/twice/samples/one.json": json.dumps(
        {"inputs": {"x": [1, 2, 3]}, "expect": {"y": [2, 4, 6]}}
    ),
    "ensembles/twice/samples/unchecked.json": json.dumps({"inputs": {"x": [1, 2, 3]}}),
}


@pytest.fixture
def space(workspace: Path) -> Workspace:
    for name, text in FILES.items():
        path = workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    made = read_workspace(workspace)
    build(made, [], lambda _: None)
    return made


def gathered(space: Workspace, *names: str) -> Gathered:
    return gather(space, names, Target(), lambda _: None)


def serve(space: Workspace) -> LocalTree:
    """A tree as a deployment leaves it, without a server."""
    tree = LocalTree(space.root / "served")
    tree.root.mkdir(exist_ok=True)
    for w in gathered(space).wanted:
        tree.copy(w.name, w.version, w.source)
        tree.write(w.name, settle(w, w.files, (w.version,)))
    return tree


def change(space: Workspace, body: str) -> None:
    steps = space.pipelines / "twice" / "steps.py"
    steps.write_text(f"def double(x):\n    return {{'y': {body}}}\n")


def versions(found: Gathered) -> dict[str, int]:
    return {w.name: w.version for w in found.wanted}


def test_callees_come_before_their_callers_with_what_they_call(space: Workspace) -> None:
    found = gathered(space, "twice")
    assert versions(found) == {"echo": 1, "twice__double": 1, "twice": 1}
    *parts, pipeline = found.wanted
    assert pipeline.held.calls == {"echo": 1, "twice__double": 1}
    assert [part.pipeline for part in parts] == [False, False]
    assert pipeline.pipeline


def test_only_requests_with_a_recorded_answer_are_golden(space: Workspace) -> None:
    found = gathered(space)
    assert [sample.name for sample in found.golden["twice"]] == ["one"]


def test_a_tree_as_deployed_needs_nothing(space: Workspace) -> None:
    tree = serve(space)
    found = gathered(space)
    ready = ServerState({w.name: frozenset({w.version}) for w in found.wanted})
    assert plan_deploy(found.wanted, tree.read(), ready, whole=True).steps == ()


def test_what_was_changed_and_not_built_is_not_deployed(space: Workspace) -> None:
    change(space, "x + x")
    with pytest.raises(InputError, match="`twice__double` has changed since it was built"):
        gathered(space)


def test_what_was_never_built_is_not_deployed(workspace: Path) -> None:
    for name, text in FILES.items():
        path = workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    with pytest.raises(InputError, match="`twice__double` is not built"):
        gathered(read_workspace(workspace))


def test_an_earlier_version_comes_back_as_it_was_with_what_it_calls(space: Workspace) -> None:
    serve(space)
    change(space, "x + x")
    build(space, [], lambda _: None)
    tree = serve(space)
    found = gather_back(tree, tree.read(), {"twice": 1})
    assert versions(found) == {"echo": 1, "twice__double": 1, "twice": 1}
    pipeline = found.wanted[-1]
    files = settle(pipeline, pipeline.files, (1,))
    config = parse_config(files["config.pbtxt"].decode(), where="t")
    assert {step.model: step.version for step in config.steps} == {"twice__double": 1, "echo": 1}


def test_a_callee_that_was_pruned_is_named(space: Workspace) -> None:
    tree = serve(space)
    tree.drop("twice__double", 1)
    with pytest.raises(Refused, match="`twice__double`: the target has no version 1 any more"):
        gather_back(tree, tree.read(), {"twice": 1})


def test_a_model_that_the_target_never_had_is_named(space: Workspace) -> None:
    tree = serve(space)
    with pytest.raises(InputError, match="the target has no `twce`") as caught:
        gather_back(tree, tree.read(), {"twce": 1})
    assert caught.value.hint == "did you mean `twice`?"


def place(space: Workspace, *moves: tuple[What, int, int]) -> Place:
    """A target with versions 1 to 3 of `twice`, to which these deployments were done."""
    tree = serve(space)
    for body in ("x + x", "x + x + 0"):
        change(space, body)
        build(space, [], lambda _: None)
        tree = serve(space)
    for what, before, after in moves:
        tree.log(entry(what, {"twice": Move((before,), (after,), {})}, "done"))
        back = gather_back(tree, tree.read(), {"twice": after}).wanted[-1]
        tree.write("twice", settle(back, back.files, (after,)))
    return Place("embedded", space, tree, MemoryServer(MemoryTree()))


@pytest.mark.parametrize("names", [[], ["twice"]], ids=["what moved last", "by name"])
def test_each_rollback_goes_one_deployment_further_back(space: Workspace, names: list[str]) -> None:
    there = place(space, ("deploy", 1, 2), ("promote", 2, 3), ("rollback", 3, 2))
    assert plan_back(there, names, None).plan.moves["twice"].after == (1,)


def test_before_the_first_version_there_is_none(space: Workspace) -> None:
    there = place(space, ("deploy", 1, 2), ("rollback", 2, 1))
    with pytest.raises(Refused, match="the target has no version before 1"):
        plan_back(there, ["twice"], None)


def test_a_number_is_for_one_model(space: Workspace) -> None:
    assert plan_back(place(space), ["twice"], 1).plan.moves["twice"].after == (1,)
    with pytest.raises(InputError, match="`--to` is the version of one model"):
        plan_back(place(space), [], 1)


def test_while_a_canary_stands_it_is_what_is_rolled_back(space: Workspace) -> None:
    there = place(space)
    tree = there.tree
    assert isinstance(tree, LocalTree)
    (w,) = (w for w in gathered(space, "twice").wanted if w.name == "twice")
    tree.copy("twice__next", w.version, w.source)
    files = settle(w, w.files, (w.version,), name="twice__next")
    tree.write("twice__next", with_share(files, Share(10)))
    found = plan_back(there, [], None)
    assert (found.what, found.names) == ("undo", ("twice",))
    assert [step.does for step in found.plan.steps] == ["unload twice__next"]
    for names, to in ((["echo"], None), (["twice"], 1)):
        with pytest.raises(Refused, match="a canary of `twice` 3 stands"):
            plan_back(there, names, to)
    with pytest.raises(Refused, match="a canary of `twice` 3 stands"):
        plan_forward(there, [], lambda _: None)
    promoted = plan_promotion(there, [])
    assert promoted.plan.moves["twice__next"].after == ()
    assert promoted.gathered.wanted[-1].held.calls == {"echo": 1, "twice__double": 3}


def test_without_a_canary_there_is_nothing_to_promote(space: Workspace) -> None:
    with pytest.raises(InputError, match="no canary stands"):
        plan_promotion(place(space), [])
