"""A canary or a shadow: what stands beside the live one, how it becomes it, how it goes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import numpy as np
import pytest
from deploy_worlds import MemoryServer, MemoryTree, ensemble, leaf, live, memory_target, wanted
from hypothesis import given, settings
from hypothesis import strategies as st

from mmctl.client.samples import Sample
from mmctl.client.status import Counts
from mmctl.deploy.apply import Target, apply
from mmctl.deploy.canary import Candidate, plan_candidate, plan_without, refuse_beside, standing
from mmctl.deploy.comparison import Beginning, ask_both, beginning_of, counted
from mmctl.deploy.gather import gather_candidate
from mmctl.deploy.ledger import entry
from mmctl.deploy.plan import plan_deploy
from mmctl.deploy.state import Kind, Share, Wanted
from mmctl.deploy.steps import Load, Plan, as_value
from mmctl.deploy.target import state_of
from mmctl.errors import Refused

SAMPLE = Sample("one", {}, {}, 1, {})
LIVE = {"leaf": (1,), "other": (1,), "p": (1,)}


def pair(leaf_version: int, version: int, config: str = "") -> list[Wanted]:
    """`p` calls `leaf`, which moves, and `other`, which stays."""
    calls = {"leaf": leaf_version, "other": 1}
    return [
        wanted("leaf", leaf_version, config or leaf()),
        wanted("other", 1, leaf()),
        wanted("p", version, ensemble("leaf", "other"), calls, pipeline=True, samples=1),
    ]


def deployed(models: Sequence[Wanted]) -> tuple[MemoryTree, MemoryServer]:
    tree, server = memory_target(*models)
    run(plan_deploy(models, tree.read(), state_of(server.index()), whole=True), tree, server)
    return tree, server


def run(plan: Plan, tree: MemoryTree, server: MemoryServer) -> None:
    golden = {step.pipeline: [SAMPLE] for step in plan.steps if hasattr(step, "pipeline")}
    apply(plan, Target(tree, server), golden)


def beside(
    models: Sequence[Wanted],
    tree: MemoryTree,
    server: MemoryServer,
    percent: float = 10,
    kind: Kind = "canary",
) -> Plan:
    tree.sources |= {w.source: w for w in models}
    share = Share(percent, kind)
    return plan_candidate(models, "p", share, tree.read(), state_of(server.index()))


def promotion(tree: MemoryTree, server: MemoryServer) -> Plan:
    state = tree.read()
    found = gather_candidate(tree, state, "p").wanted
    tree.sources |= {w.source: w for w in found}
    return plan_deploy(found, state, state_of(server.index()), trial=False)


def removal(tree: MemoryTree, server: MemoryServer) -> Plan:
    return plan_without(tree.read(), state_of(server.index()))


def does(plan: Plan) -> list[str]:
    return [step.does for step in plan.steps]


def test_it_touches_nothing_that_is_live_and_is_tried_before_it_takes_requests() -> None:
    tree, server = deployed(pair(1, 1))
    server.watched = {"p": set()}
    plan = beside(pair(2, 2), tree, server)
    assert does(plan) == [
        "copy leaf__next 2",
        "load leaf 2 as leaf__next, which nobody calls yet",
        "copy p__next 2",
        "load p 2 as p__next, which nobody calls yet",
        "send 1 golden request to p__next",
        "give 10 % of the requests for p to p__next 2",
    ]
    assert {name: move.after for name, move in plan.moves.items()} == {
        "leaf__next": (2,),
        "p__next": (2,),
    }
    run(plan, tree, server)
    assert live(server) == {**LIVE, "leaf__next": (2,), "p__next": (2,)}
    assert standing(tree.read()) == Candidate("p", 2, Share(10))
    assert server.watched == {"p": {(1,)}}


def test_another_share_is_one_load_of_the_candidate() -> None:
    tree, server = deployed(pair(1, 1))
    run(beside(pair(2, 2), tree, server), tree, server)
    assert does(beside(pair(2, 2), tree, server, 50)) == [
        "give 50 % of the requests for p to p__next 2"
    ]
    assert beside(pair(2, 2), tree, server).steps == ()


def test_a_shadow_is_the_same_but_for_the_parameter_by_which_clients_know_it() -> None:
    tree, server = deployed(pair(1, 1))
    plan = beside(pair(2, 2), tree, server, 12.5, "shadow")
    assert does(plan)[-1] == (
        "copy 12.5 % of the requests for p to p__next 2, whose answers nobody gets"
    )
    last = as_value(plan.steps[-1])
    assert (last["step"], last["why"], last["percent"]) == ("load", "shadow", 12.5)
    assert [s.share for s in plan.steps if isinstance(s, Load)] == [
        None,
        None,
        Share(12.5, "shadow"),
    ]
    run(plan, tree, server)
    assert live(server) == {**LIVE, "leaf__next": (2,), "p__next": (2,)}
    assert standing(tree.read()) == Candidate("p", 2, Share(12.5, "shadow"))
    text = tree.models["p__next"].files["config.pbtxt"].decode()
    assert '"mmctl.shadow"' in text
    assert "mmctl.canary" not in text
    with pytest.raises(Refused, match="a shadow of `p` 2 stands"):
        beside(pair(3, 3), tree, server)


def test_a_shadow_becomes_a_canary_by_one_load_and_then_the_live_one() -> None:
    tree, server = deployed(pair(1, 1))
    run(beside(pair(2, 2), tree, server, 10, "shadow"), tree, server)
    plan = beside(pair(2, 2), tree, server, 10, "canary")
    assert does(plan) == ["give 10 % of the requests for p to p__next 2"]
    run(plan, tree, server)
    assert standing(tree.read()) == Candidate("p", 2, Share(10))
    run(promotion(tree, server), tree, server)
    assert live(server) == {**LIVE, "leaf": (2,), "p": (2,)}
    text = tree.models["p"].files["config.pbtxt"].decode()
    assert "mmctl.shadow" not in text
    assert "mmctl.canary" not in text


def test_taken_away_nothing_is_left_of_a_shadow() -> None:
    tree, server = deployed(pair(1, 1))
    held = dict(tree.models)
    run(beside(pair(2, 2), tree, server, 10, "shadow"), tree, server)
    run(removal(tree, server), tree, server)
    assert live(server) == LIVE
    assert tree.models == held


def test_promoted_the_candidate_is_live_as_if_it_had_been_deployed() -> None:
    tree, server = deployed(pair(1, 1))
    run(beside(pair(2, 2), tree, server), tree, server)
    server.watched = {"p": set()}
    plan = promotion(tree, server)
    assert does(plan) == [
        "copy leaf 2",
        "load leaf 1 and 2 side by side, until its callers have switched",
        "copy p 2",
        "switch p to 2",
        "leave leaf 2 alone in service",
        "unload p__next",
        "unload leaf__next",
    ]
    run(plan, tree, server)
    assert live(server) == {**LIVE, "leaf": (2,), "p": (2,)}
    assert server.watched == {"p": {(1,), (2,)}}
    state = state_of(server.index())
    assert plan_deploy(pair(2, 2), tree.read(), state, whole=True).steps == ()


def test_a_callee_that_no_config_shares_stays_a_candidate_until_it_is_promoted() -> None:
    new = pair(2, 2, leaf('output { name: "z" data_type: TYPE_FP32 dims: 1 }'))
    tree, server = deployed(pair(1, 1))
    run(beside(new, tree, server), tree, server)
    run(promotion(tree, server), tree, server)
    assert live(server) == {**LIVE, "leaf": (2,), "p": (2,)}
    state = state_of(server.index())
    assert plan_deploy(new, tree.read(), state, whole=True).steps == ()


def test_taken_away_nothing_is_left_of_it() -> None:
    tree, server = deployed(pair(1, 1))
    held = dict(tree.models)
    run(beside(pair(2, 2), tree, server), tree, server)
    assert does(removal(tree, server)) == ["unload p__next", "unload leaf__next"]
    run(removal(tree, server), tree, server)
    assert live(server) == LIVE
    assert tree.models == held


def test_a_restarted_server_has_it_too() -> None:
    tree, server = deployed(pair(1, 1))
    run(beside(pair(2, 2), tree, server), tree, server)
    before = live(server)
    server.alive, server.loaded = False, {}
    server.revive()
    assert live(server) == before


def test_while_it_stands_another_is_refused_with_the_ways_out() -> None:
    tree, server = deployed(pair(1, 1))
    run(beside(pair(2, 2), tree, server), tree, server)
    for ask in (
        lambda: beside(pair(3, 3), tree, server),
        lambda: refuse_beside(standing(tree.read())),
    ):
        with pytest.raises(Refused, match="a canary of `p` 2 stands") as caught:
            ask()
        assert "`mmctl promote`" in str(caught.value.hint)
        assert "`mmctl rollback`" in str(caught.value.hint)


def test_of_what_is_live_already_or_not_served_there_is_none() -> None:
    tree, server = deployed(pair(1, 1))
    plan = beside(pair(1, 1), tree, server)
    assert (plan.steps, plan.warnings) == ((), ("`p` 1 is live already",))
    with pytest.raises(Refused, match="`p` is not served yet"):
        beside(pair(1, 1), *memory_target())


def test_settings_of_a_callee_are_tried_as_well() -> None:
    tree, server = deployed(pair(1, 1))
    new = pair(1, 1, leaf() + "instance_group { count: 2 kind: KIND_CPU }")
    run(beside(new, tree, server), tree, server)
    assert live(server) == {**LIVE, "leaf__next": (1,), "p__next": (1,)}
    run(promotion(tree, server), tree, server)
    state = state_of(server.index())
    assert plan_deploy(new, tree.read(), state, whole=True).steps == ()


def test_what_could_not_be_promoted_does_not_begin() -> None:
    caller = wanted("q", 1, ensemble("p"), {"p": 1}, pipeline=True, samples=1)
    tree, server = deployed([*pair(1, 1), caller])
    with pytest.raises(Refused, match="`q` calls version 1 of it"):
        beside(pair(2, 2), tree, server)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({'name: "x"': 'name: "z"'}, "input `x: fp32[3]`, input `z: fp32[3]`"),
        ({'name: "y"': 'name: "z"'}, "output `y: fp32[3]`"),
        ({"TYPE_FP32": "TYPE_INT32"}, "input `x: fp32[3]`, output `y: fp32[3]`"),
        ({"max_batch_size: 4": "max_batch_size: 2"}, "`max_batch` 2, not 4"),
    ],
)
def test_it_must_answer_what_the_live_one_is_asked(changes: dict[str, str], told: str) -> None:
    tree, server = deployed([wanted("p", 1, leaf())])
    config = leaf()
    for old, new in changes.items():
        config = config.replace(old, new)
    with pytest.raises(Refused) as caught:
        beside([wanted("p", 2, config)], tree, server)
    assert f"they differ in {told}" in caught.value.message


def test_a_candidate_whose_golden_answer_differs_takes_no_requests() -> None:
    tree, server = deployed(pair(1, 1))
    held = dict(tree.models)
    server.wrong = {("p", 2)}
    with pytest.raises(Refused, match="golden request"):
        run(beside(pair(2, 2), tree, server), tree, server)
    assert live(server) == LIVE
    assert tree.models == held


class Killed(BaseException):
    """What no handler of the program catches."""


@given(st.sampled_from(["begin", "promote", "undo"]), st.integers(0, 30), st.booleans())
@settings(max_examples=80, deadline=None)
def test_killed_anywhere_the_live_one_serves_and_a_second_try_finishes(
    what: str, death: int, restarted: bool
) -> None:
    tree, server = deployed(pair(1, 1))
    if what != "begin":
        run(beside(pair(2, 2), tree, server), tree, server)
    server.watched = {"p": set()}
    passed = 0

    def seam(_name: str) -> None:
        nonlocal passed
        passed += 1
        if passed > death:
            raise Killed

    def plan() -> Plan:
        if what == "begin":
            return beside(pair(2, 2), tree, server)
        return promotion(tree, server) if what == "promote" else removal(tree, server)

    with suppress(Killed):
        golden = {"p": [SAMPLE]}
        apply(plan(), Target(tree, server), golden, seam=seam)
    if restarted:
        server.alive, server.loaded = False, {}
        server.revive()
        server.look()
    ended = standing(tree.read()) is None
    if not (ended and what == "promote"):
        run(plan(), tree, server)
        after = {"begin": {**LIVE, "leaf__next": (2,), "p__next": (2,)}, "undo": LIVE}
        assert live(server) == after.get(what, {**LIVE, "leaf": (2,), "p": (2,)})
    else:  # it is promoted, and a deployment clears away what is left
        models = pair(2, 2)
        tree.sources |= {w.source: w for w in models}
        run(plan_deploy(models, tree.read(), state_of(server.index())), tree, server)
        assert live(server) == {**LIVE, "leaf": (2,), "p": (2,)}


def test_the_numbers_of_a_candidate_are_those_of_its_model() -> None:
    tree, server = deployed(pair(1, 1))
    plan = beside(pair(2, 2), tree, server)
    tree.log(entry("canary", plan.moves, "done", names=["p"]))
    assert tree.read().keys == {"leaf": {2: "leaf-2"}, "p": {2: "p-2"}}
    other = [*pair(2, 2)[:2], wanted("p", 2, leaf(), key="other")]
    with pytest.raises(Refused, match="the target had another version 2"):
        beside(other, tree, server)


THEN = Counts(100, 2, 5_000_000)
MORE = Counts(160, 5, 9_000_000)


@pytest.mark.parametrize(
    ("now", "beginning", "run_now", "found"),
    [
        (MORE, Beginning(THEN, "1"), "1", (Counts(60, 3, 4_000_000), "began")),
        (THEN, Beginning(THEN, "1"), "1", (Counts(), "began")),
        # Restarted, and it has counted more again than there was when the candidate began.
        (MORE, Beginning(THEN, "1"), "2", (MORE, "restart")),
        (Counts(40, 1, 900), Beginning(THEN, "1"), "2", (Counts(40, 1, 900), "restart")),
        # The same process, and the live one was loaded anew by somebody: any of the three tells.
        (Counts(40, 2, 9_000_000), Beginning(THEN, "1"), "1", (Counts(40, 2, 9_000_000), "load")),
        (Counts(160, 1, 9_000_000), Beginning(THEN, "1"), "1", (Counts(160, 1, 9_000_000), "load")),
        (Counts(160, 5, 900), Beginning(THEN, "1"), "1", (Counts(160, 5, 900), "load")),
        # Nobody knows whether it is the same process, or what it had counted.
        (MORE, Beginning(THEN, ""), "", (MORE, "load")),
        (MORE, Beginning(THEN, ""), "1", (MORE, "load")),
        (MORE, None, "1", (MORE, "load")),
    ],
)
def test_nothing_is_subtracted_from_counts_that_may_have_begun_anew(
    now: Counts, beginning: Beginning | None, run_now: str, found: object
) -> None:
    assert counted(now, beginning, run_now) == found


def test_the_ledger_says_what_was_counted_when_this_candidate_began() -> None:
    candidate = Candidate("p", 2, Share(10))

    def line(what: str, outcome: str, **beside: object) -> dict[str, object]:
        return {"what": what, "names": ["p"], "outcome": outcome, **beside}

    def counts(requests: int) -> dict[str, int]:
        return {"requests": requests, "failed": 0, "total_ns": 0}

    begun = [
        line("canary", "done", counts=counts(1), run="a"),
        line("undo", "done"),
        line("canary", "begun"),
        line("canary", "done", counts=counts(5), run="b"),
    ]
    found = Beginning(Counts(5), "b")
    assert beginning_of([*begun, line("promote", "refused")], candidate) == found
    # It was not written: mmctl was killed, or the server did not tell. An older one does not count.
    assert beginning_of([*begun, line("canary", "begun")], candidate) is None
    assert beginning_of([*begun, line("canary", "done")], candidate) is None
    assert beginning_of(begun, Candidate("p", 2, Share(10, "shadow"))) is None
    assert beginning_of([], candidate) is None


def test_a_mean_is_of_what_was_answered() -> None:
    assert Counts(60, 10, 100_000_000).mean_ms == 2
    assert Counts().mean_ms is None


def test_answers_agree_within_the_tolerance_of_the_sample() -> None:
    _, server = memory_target()
    loose = Sample("loose", {}, {}, 1, {"y": {"near": 1, "abs": 0.5}})
    a, b, c = (np.array([[x]], np.float32) for x in (1.0, 1.0000001, 1.2))
    server.answers = {"p": {"y": a}, "p__next": {"y": b}}
    assert ask_both(server, "p", [SAMPLE, loose]).differing == 0
    server.answers["p__next"] = {"y": c}
    found = ask_both(server, "p", [SAMPLE, loose])
    assert (found.asked, found.differing) == (2, 1)
    assert found.first.startswith("sample `one`: `y`: 1.0")


def test_one_that_fails_where_the_other_answers_disagrees() -> None:
    _, server = memory_target()
    server.answers = {"p": {"y": np.array([1])}}
    assert ask_both(server, "p", [SAMPLE]).first == "sample `one`: p__next: no answer"
    server.answers = {}
    assert ask_both(server, "p", [SAMPLE]).differing == 0
