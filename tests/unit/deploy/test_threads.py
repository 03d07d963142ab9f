"""A plan says which pipelines may call more at once than the running server has threads for."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from deploy_worlds import leaf, wanted

from mmctl.deploy.plan import plan_deploy
from mmctl.deploy.state import ServerState, TreeState, Wanted
from mmctl.deploy.steps import Load, Plan
from mmctl.deploy.threads import warn_of_threads


def pipeline(*calls: int, name: str = "busy") -> Wanted:
    """In the bls form; each node may have so many calls under way."""
    made = wanted(name, 1, leaf(), {"m": 1}, plan=True)
    nodes = [{"name": f"n{i}", "model": "m", "max_in_flight": n} for i, n in enumerate(calls)]
    plan = json.dumps({"schema": 1, "nodes": nodes, "pins": {"m": 1}})
    return replace(made, files={**made.files, "1/plan.json": plan.encode()})


def planned(*models: Wanted) -> Plan:
    return plan_deploy([wanted("m", 1, leaf()), *models], TreeState(), ServerState())


@pytest.mark.parametrize(
    ("calls", "started_with", "warns"),
    [
        ((16, 16), 32, False),
        ((16, 17), 32, True),
        ((16, 17), 64, False),
        ((40, 40), 64, True),
        ((16, 16), None, False),
        ((16, 17), None, True),
    ],
)
def test_it_warns_when_the_sum_over_the_nodes_is_more(
    calls: tuple[int, ...], started_with: int | None, warns: bool
) -> None:
    told = warn_of_threads(planned(pipeline(*calls)), started_with).warnings
    assert bool(told) is warns


def test_it_says_what_is_there_and_the_flag_that_helps() -> None:
    plan = replace(planned(pipeline(20, 20)), warnings=("other",))
    assert warn_of_threads(plan, 32).warnings == (
        "other",
        "`busy` may have 40 calls under way, and this server was started with threads for 32: the "
        "others wait; start it again with `--backend-config=python,thread-pool-size=40`, as `mmctl "
        "serve` does",
    )
    (told,) = warn_of_threads(planned(pipeline(20, 20)), None).warnings
    assert "Triton has threads for 32, unless it was told otherwise" in told


def test_a_candidate_is_told_by_the_name_of_its_pipeline_once() -> None:
    plan = planned(replace(pipeline(20, 20), pipeline=True, samples=1))
    assert [step.model for step in plan.steps] == [
        *("m", "m"), "busy", "busy__next", "busy__next", "busy__next", "busy__next", "busy",
    ]  # fmt: skip
    assert len(warn_of_threads(plan, 32).warnings) == 1


def test_what_is_not_loaded_and_what_is_no_plan_of_ours_is_not_told() -> None:
    own = wanted("own", 1, leaf(), plan=True)
    for text in (b"{", b"[]", b"[" * 100_000, b'{"pins": 3}', b'{"pins": {"x": "y"}}'):
        odd = replace(own, files={**own.files, "1/plan.json": text})
        plan = planned(odd)
        assert warn_of_threads(plan, 32).warnings == ()
        served = [step for step in plan.steps if isinstance(step, Load) and step.model == "own"]
        assert served[-1].files["1/plan.json"] == text
    assert warn_of_threads(Plan(), 32).warnings == ()
