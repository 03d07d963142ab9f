"""Wanted, held and running -> steps: the order of a deployment, as a table."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from deploy_worlds import MemoryServer, MemoryTree, ensemble, leaf, memory_target, wanted

from mmctl.deploy.apply import Target, apply
from mmctl.deploy.plan import plan_deploy
from mmctl.deploy.state import Wanted
from mmctl.deploy.steps import Plan
from mmctl.deploy.target import state_of
from mmctl.errors import Refused

PIPELINE = {"pipeline": True, "samples": 2}


def pair(leaf_version: int, version: int) -> list[Wanted]:
    """A pipeline `p` in the form of an ensemble, and its leaf."""
    return [
        wanted("leaf", leaf_version, leaf()),
        wanted("p", version, ensemble("leaf"), {"leaf": leaf_version}, **PIPELINE),
    ]


def nested(version: int, *, bls: bool = False) -> list[Wanted]:
    """`outer` calls `inner` calls `leaf`, all of one version."""
    pins = {"inner": version}
    outer = (
        wanted("outer", version, leaf(), pins, plan=True, runner=True, **PIPELINE)
        if bls
        else wanted("outer", version, ensemble("inner"), pins, **PIPELINE)
    )
    return [
        wanted("leaf", version, leaf()),
        wanted("inner", version, ensemble("leaf"), {"leaf": version}, **PIPELINE),
        outer,
    ]


def deployed(*rounds: Sequence[Wanted]) -> tuple[MemoryTree, MemoryServer]:
    tree, server = memory_target(*(w for models in rounds for w in models))
    for models in rounds:
        apply(plan_for(models, tree, server), Target(tree, server), golden(models))
    return tree, server


def golden(models: Sequence[Wanted]) -> dict[str, list[object]]:
    class Nameless:
        name = "sample"

    return {w.name: [Nameless()] * w.samples for w in models}


def plan_for(models: Sequence[Wanted], tree: MemoryTree, server: MemoryServer, **how: bool) -> Plan:
    tree.sources |= {w.source: w for w in models}
    return plan_deploy(models, tree.read(), state_of(server.index()), **how)


def does(plan: Plan) -> list[str]:
    return [step.does for step in plan.steps]


def test_callees_come_first_and_a_pipeline_is_tried_before_it_serves() -> None:
    tree, server = deployed()
    assert does(plan_for(pair(1, 1), tree, server)) == [
        "copy leaf 1",
        "serve leaf 1",
        "copy p 1",
        "copy p__next 1",
        "load p 1 as p__next, which nobody calls yet",
        "send 2 golden requests to p__next",
        "unload p__next",
        "serve p 1",
    ]


def test_a_new_callee_loads_beside_the_old_one_until_the_pipeline_has_switched() -> None:
    tree, server = deployed(pair(1, 1))
    assert does(plan_for(pair(2, 2), tree, server)) == [
        "copy leaf 2",
        "load leaf 1 and 2 side by side, until its callers have switched",
        "copy p 2",
        "copy p__next 2",
        "load p 2 as p__next, which nobody calls yet",
        "send 2 golden requests to p__next",
        "unload p__next",
        "switch p to 2",
        "leave leaf 2 alone in service",
    ]


@pytest.mark.parametrize("bls", [False, True], ids=["ensemble", "bls"])
def test_the_candidate_of_a_nested_ensemble_stands_in_until_its_caller_has_switched(
    bls: bool,
) -> None:
    tree, server = deployed(nested(1, bls=bls))
    server.watched = {"outer": set(), "inner": set()}
    plan = plan_for(nested(2, bls=bls), tree, server)
    assert does(plan)[5:] == [
        "send 2 golden requests to inner__next",
        "copy outer 2",
        "copy outer__next 2",
        "load outer 2 as outer__next, which nobody calls yet",
        "send 2 golden requests to outer__next",
        "unload outer__next",
        "switch outer to 2",
        "switch inner to 2",
        "let outer 2 call its models by their own names again",
        "leave leaf 2 alone in service",
        "unload inner__next",
    ]
    apply(plan, Target(tree, server), golden(nested(2)))
    assert server.watched == {"outer": {(1,), (2,)}, "inner": {(1,), (2,)}}


def test_a_leaf_that_nobody_calls_switches_at_once() -> None:
    tree, server = deployed([wanted("leaf", 1, leaf())])
    steps = does(plan_for([wanted("leaf", 2, leaf())], tree, server))
    assert steps == ["copy leaf 2", "switch leaf to 2"]


def test_new_settings_give_one_load_and_no_trial() -> None:
    tree, server = deployed(pair(1, 1))
    models = pair(1, 1)
    models[0] = wanted("leaf", 1, leaf() + "instance_group { count: 2 kind: KIND_CPU }")
    assert does(plan_for(models, tree, server)) == ["load leaf 1 with other settings"]


def test_a_version_that_another_pipeline_calls_stays_in_service() -> None:
    other = wanted("q", 1, ensemble("leaf"), {"leaf": 1}, **PIPELINE)
    tree, server = deployed([*pair(1, 1), other])
    server.watched = {"p": set(), "q": set()}
    apply(plan_for(pair(2, 2), tree, server), Target(tree, server), golden(pair(2, 2)))
    assert tree.models["leaf"].live == (1, 2)
    assert plan_for(pair(2, 2), tree, server).steps == ()
    both = [*pair(2, 2), wanted("q", 2, ensemble("leaf"), {"leaf": 2}, **PIPELINE)]
    apply(plan_for(both, tree, server), Target(tree, server), golden(both))
    assert tree.models["leaf"].live == (2,)


def test_an_ensemble_that_another_pipeline_calls_does_not_move_alone() -> None:
    tree, server = deployed(nested(1))
    with pytest.raises(Refused, match="an ensemble has one version at a time") as caught:
        plan_for(nested(2)[:2], tree, server)
    assert caught.value.hint == "move them together: name outer as well"


def test_a_number_that_was_used_for_another_content_is_refused() -> None:
    tree, server = deployed(pair(1, 1))
    models = [wanted("leaf", 1, leaf(), key="another")]
    with pytest.raises(Refused, match="the target had another version 1"):
        plan_for(models, tree, server)


def test_a_number_that_only_the_ledger_knows_is_refused_as_well() -> None:
    tree, server = deployed()
    tree.log({"keys": {"leaf": {"3": "first"}}})
    with pytest.raises(Refused, match="version 3"):
        plan_for([wanted("leaf", 3, leaf(), key="second")], tree, server)


def test_outputs_of_a_step_may_come_and_go() -> None:
    old = wanted("p__s", 1, leaf(), runner=True)
    new = wanted("p__s", 2, leaf('output { name: "z" data_type: TYPE_FP32 dims: 1 }'), runner=True)
    callers = [wanted("p", n, ensemble("p__s"), {"p__s": n}, pipeline=True) for n in (1, 2)]
    tree, server = deployed([old, callers[0]])
    plan = plan_for([new, callers[1]], tree, server)
    beside = next(step for step in plan.steps if "side by side" in step.does)
    config = beside.files["config.pbtxt"].decode()  # type: ignore[union-attr]
    assert 'name: "z"' in config
    assert "versions: [1, 2]" in config


@pytest.mark.parametrize(
    "new",
    [
        pytest.param(leaf().replace("TYPE_FP32", "TYPE_INT32"), id="other types"),
        pytest.param(leaf('output { name: "z" data_type: TYPE_FP32 dims: 1 }'), id="one more"),
        pytest.param(leaf().replace("python", "onnxruntime"), id="another backend"),
    ],
)
def test_where_no_config_serves_old_and_new_the_candidate_of_the_callee_stands_in(
    new: str,
) -> None:
    tree, server = deployed(pair(1, 1))
    server.watched = {"p": set(), "leaf": set()}
    models = [wanted("leaf", 2, new), pair(2, 2)[1]]
    plan = plan_for(models, tree, server)
    assert does(plan) == [
        "copy leaf 2",
        "copy leaf__next 2",
        "load leaf 2 as leaf__next, which nobody calls yet",
        "copy p 2",
        "copy p__next 2",
        "load p 2 as p__next, which nobody calls yet",
        "send 2 golden requests to p__next",
        "unload p__next",
        "switch p to 2",
        "switch leaf to 2",
        "let p 2 call its models by their own names again",
        "unload leaf__next",
    ]
    apply(plan, Target(tree, server), golden(models))
    assert plan_for(models, tree, server).steps == ()


def test_versions_that_must_stay_together_and_cannot_are_refused() -> None:
    other = wanted("q", 1, ensemble("leaf"), {"leaf": 1}, **PIPELINE)
    tree, server = deployed([*pair(1, 1), other])
    new = leaf('output { name: "z" data_type: TYPE_FP32 dims: 1 }')
    with pytest.raises(Refused, match="their configs differ in `output`") as caught:
        plan_for([wanted("leaf", 2, new), *pair(2, 2)[1:]], tree, server)
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("move all that calls it together")


def test_a_pipeline_without_golden_requests_is_named() -> None:
    tree, server = deployed()
    plan = plan_for([wanted("p", 1, leaf(), pipeline=True)], tree, server)
    assert plan.warnings == ("`p` has no golden requests: it is served untried",)


def test_a_part_that_its_pipeline_has_no_more_is_kept_beside_the_tree() -> None:
    parts = [wanted("p__s", 1, leaf()), wanted("p", 1, ensemble("p__s"), {"p__s": 1})]
    tree, server = deployed([*parts, wanted("other", 1, leaf())])
    plan = plan_for([wanted("p", 2, leaf(), plan=True)], tree, server)
    assert does(plan) == [
        "copy p 2",
        "switch p to 2",
        "unload p__s, which nothing calls any more; its versions are kept",
    ]


def test_the_whole_workspace_takes_the_place_of_all_that_is_served() -> None:
    tree, server = deployed([*pair(1, 1), wanted("other", 1, leaf())])
    plan = plan_for([wanted("other", 1, leaf())], tree, server, whole=True)
    assert [step.model for step in plan.steps] == ["p", "leaf"]


def test_memory_is_that_of_both_copies() -> None:
    tree, server = deployed(pair(1, 1))
    # leaf 2 beside leaf 1, then p__next, then p 2 beside p 1
    assert plan_for(pair(2, 2), tree, server).extra_bytes == 200


def test_what_is_not_ready_is_loaded_again() -> None:
    tree, server = deployed(pair(1, 1))
    server.unload("p")
    plan = plan_for(pair(1, 1), tree, server)
    assert does(plan) == ["load p 1 once more: it is not ready"]


def test_a_cached_ensemble_of_the_users_own_does_not_keep_its_number_when_a_callee_moves() -> None:
    cached = ensemble("leaf") + "\nresponse_cache { enable: true }"
    old = [wanted("leaf", 1, leaf()), wanted("own", 1, cached, {"leaf": 1})]
    new = [wanted("leaf", 2, leaf()), wanted("own", 1, cached, {"leaf": 2})]
    tree, server = deployed(old)
    with pytest.raises(Refused, match="its number stays 1 while what it calls moves"):
        plan_for(new, tree, server)
