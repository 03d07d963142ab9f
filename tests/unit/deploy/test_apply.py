"""A plan carried out, undone, cut short: on a target in memory that keeps Triton's rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress

import pytest
from deploy_worlds import MemoryServer, MemoryTree, Workshop, live, memory_target
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mmctl.client.samples import Sample
from mmctl.deploy.apply import Target, apply
from mmctl.deploy.plan import plan_deploy
from mmctl.deploy.state import Wanted
from mmctl.deploy.steps import Plan
from mmctl.deploy.target import state_of
from mmctl.errors import MmctlError, Refused, WorldError

pytestmark = pytest.mark.usefixtures("impatient")
SAMPLE = Sample("one", {}, {}, 1, {})


@pytest.fixture(scope="module")
def impatient() -> Iterator[None]:
    """This server settles at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mmctl.deploy.apply.SETTLE_S", 0.0)
        patch.setattr("mmctl.deploy.apply.REVIVE_S", 0.5)
        yield


def plan_for(models: Sequence[Wanted], tree: MemoryTree, server: MemoryServer) -> Plan:
    tree.sources |= {w.source: w for w in models}
    return plan_deploy(models, tree.read(), state_of(server.index()), whole=True)


def run(
    models: Sequence[Wanted],
    tree: MemoryTree,
    server: MemoryServer,
    seam: Callable[[str], None] = lambda _: None,
) -> None:
    golden = {w.name: [SAMPLE] for w in models if w.samples}
    apply(plan_for(models, tree, server), Target(tree, server), golden, seam=seam)


builds = st.lists(
    st.tuples(st.integers(1, 3), st.integers(1, 3), st.booleans()), min_size=1, max_size=5
)


@given(builds)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_applying_a_plan_leaves_nothing_to_plan_and_nothing_ever_stops_answering(
    rounds: list[tuple[int, int, bool]],
) -> None:
    shop = Workshop()
    tree, server = memory_target()
    for a, b, deeper in rounds:
        models = shop.build(a, b, deeper=deeper)
        both = {w.name for w in models} & set(server.loaded)
        server.watched = {name: set() for name in both if name not in "ab"}
        before = live(server)
        run(models, tree, server)
        after = {w.name: (w.version,) for w in models}
        assert live(server) == after
        for name, seen in server.watched.items():
            assert {v for versions in seen for v in versions} <= {*before[name], *after[name]}
        assert plan_for(models, tree, server).steps == ()


class Killed(BaseException):
    """What no handler of the program catches."""


@given(st.integers(1, 3), st.integers(1, 3), st.integers(0, 200))
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_killed_at_any_seam_old_or_new_serves_and_the_next_deploy_finishes(
    a: int, b: int, death: int
) -> None:
    shop = Workshop()
    tree, server = memory_target()
    run(shop.build(1, 1), tree, server)
    server.watched = {name: set() for name in Workshop.FORMS}
    passed = 0

    def seam(_name: str) -> None:
        nonlocal passed
        passed += 1
        if passed > death:
            raise Killed

    models = shop.build(a, b)
    with suppress(Killed):
        run(models, tree, server, seam)
    if death % 2:  # the server may have been started anew meanwhile
        server.alive, server.loaded = False, {}
        server.revive()
        server.look()
    run(models, tree, server)
    assert live(server) == {w.name: (w.version,) for w in models}
    assert not tree.torn


REFUSED = [
    *((kind, name) for kind in ("broken", "deadly") for name in ("a", "inner", "runs", "outer")),
    *(("wrong", name) for name in ("inner", "deep", "runs", "outer")),
    *(("harmful", name) for name in ("a", "runs")),
]


@pytest.mark.parametrize(("kind", "name"), REFUSED)
def test_a_version_that_is_no_good_is_refused_and_the_old_state_is_back(
    kind: str, name: str
) -> None:
    shop = Workshop()
    tree, server = memory_target()
    run(shop.build(1, 1), tree, server)
    held, before = dict(tree.models), live(server)
    models = shop.build(2, 2)
    bad = {(w.name, w.version) for w in models if w.name == name}
    setattr(server, kind, bad | {(f"{n}__next", v) for n, v in bad if kind != "wrong"})
    with pytest.raises(Refused, match=r"^step \d+ of \d+ \(") as caught:
        run(models, tree, server)
    assert caught.value.exit_code == 1
    assert live(server) == before
    assert tree.models == held
    assert not tree.torn
    setattr(server, kind, set())
    run(models, tree, server)
    assert live(server) == {w.name: (w.version,) for w in models}


def test_a_server_that_vanishes_leaves_the_old_tree() -> None:
    shop = Workshop()
    tree, server = memory_target()
    run(shop.build(1, 1), tree, server)
    held = dict(tree.models)
    server.ours, server.deadly = False, {("deep__next", 2)}
    with pytest.raises(WorldError, match="Triton does not answer; its tree is the old one"):
        run(shop.build(2, 2), tree, server)
    assert tree.models == held
    assert tree.torn


def test_a_full_disk_undoes_what_was_done() -> None:
    shop = Workshop()
    tree, server = memory_target()
    run(shop.build(1, 1), tree, server)
    before = live(server)
    write = tree.write

    def full(model: str, files: Mapping[str, bytes]) -> None:
        if model == "deep__next" and files:
            raise OSError(28, "No space left on device")
        write(model, files)

    tree.write = full  # type: ignore[method-assign]
    with pytest.raises(MmctlError, match="No space left on device") as caught:
        run(shop.build(2, 2), tree, server)
    assert caught.value.exit_code == 3
    assert live(server) == before
