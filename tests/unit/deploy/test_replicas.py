"""Several servers behind one target, on one tree or each on its own: all serve the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from deploy_worlds import MemoryServer, MemoryTree, Workshop, live
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mmctl.client.samples import Sample
from mmctl.client.status import Counts
from mmctl.deploy.apply import Target, apply
from mmctl.deploy.mirrored import MirroredTree
from mmctl.deploy.plan import plan_deploy
from mmctl.deploy.replicas import Replicas, named, replicas_of, replicated
from mmctl.deploy.state import Held, HeldModel, Wanted, said_digests
from mmctl.deploy.steps import Plan
from mmctl.deploy.target import Tree, state_of
from mmctl.errors import Refused, WorldError

pytestmark = pytest.mark.usefixtures("impatient")
SAMPLE = Sample("one", {}, {}, 1, {})


@pytest.fixture(scope="module")
def impatient() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mmctl.deploy.apply.SETTLE_S", 0.12)
        patch.setattr("mmctl.deploy.apply.REVIVE_S", 0.5)
        yield


class Killed(BaseException):
    """What no handler of the program catches."""


@dataclass
class MortalTree(MemoryTree):
    """One in whose writing the process may die: between two trees, too."""

    die: Callable[[], None] = field(default=lambda: None)

    def __getattribute__(self, name: str) -> Any:
        if name in ("copy", "write", "keep", "erase", "bring_back", "mend"):
            self.die()
        return super().__getattribute__(name)


@dataclass
class World:
    """A target with two replicas."""

    trees: tuple[MortalTree, ...]
    servers: tuple[MemoryServer, MemoryServer]

    @property
    def tree(self) -> Tree:
        return self.trees[0] if len(self.trees) == 1 else MirroredTree(self.trees)  # type: ignore[return-value]

    @property
    def server(self) -> Replicas:
        return Replicas(self.servers)

    def plan(self, models: Sequence[Wanted]) -> Plan:
        for tree in self.trees:
            tree.sources |= {w.source: w for w in models}
        return plan_deploy(models, self.tree.read(), state_of(self.server.index()), whole=True)

    def run(self, models: Sequence[Wanted], seam: Callable[[str], None] = lambda _: None) -> None:
        golden = {w.name: [SAMPLE] for w in models if w.samples}
        apply(self.plan(models), Target(self.tree, self.server), golden, seam=seam)


@pytest.fixture(params=["one tree", "a tree each"])
def shared(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "one tree")


def make_world(*, shared: bool) -> World:
    trees = (MortalTree(),) if shared else (MortalTree(), MortalTree())
    servers = MemoryServer(trees[0], name="a:1"), MemoryServer(trees[-1], name="b:1")
    return World(trees, servers)


builds = st.lists(
    st.tuples(st.integers(1, 3), st.integers(1, 3), st.booleans()), min_size=1, max_size=4
)


@given(builds, st.booleans())
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_all_replicas_serve_what_is_wanted_and_none_ever_stops_answering(
    rounds: list[tuple[int, int, bool]], shared: bool
) -> None:
    shop, world = Workshop(), make_world(shared=shared)
    for a, b, deeper in rounds:
        models = shop.build(a, b, deeper=deeper)
        for server in world.servers:
            both = {w.name for w in models} & set(server.loaded)
            server.watched = {name: set() for name in both if name not in "ab"}
        world.run(models)
        for server in world.servers:
            assert live(server) == {w.name: (w.version,) for w in models}
        assert world.plan(models).steps == ()


@given(st.integers(1, 3), st.integers(1, 3), st.integers(0, 300), st.booleans())
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_killed_anywhere_old_or_new_serves_and_the_next_deploy_finishes(
    a: int, b: int, death: int, shared: bool
) -> None:
    shop, world = Workshop(), make_world(shared=shared)
    world.run(shop.build(1, 1))
    for server in world.servers:
        server.watched = {name: set() for name in Workshop.FORMS}
    passed = 0

    def die(_name: str = "") -> None:
        nonlocal passed
        passed += 1
        if passed > death:
            raise Killed

    for tree in world.trees:
        tree.die = die
    models = shop.build(a, b)
    with suppress(Killed):
        world.run(models, die)
    for tree in world.trees:
        tree.die = lambda: None
    world.run(models)
    for server in world.servers:
        assert live(server) == {w.name: (w.version,) for w in models}
    assert not world.tree.read().torn


@pytest.mark.parametrize(
    ("kind", "name"),
    [("broken", "a"), ("broken", "outer"), ("wrong", "runs"), ("wrong", "outer"), ("harmful", "a")],
)
def test_what_fails_on_the_second_replica_is_undone_on_both(
    kind: str, name: str, shared: bool
) -> None:
    shop, world = Workshop(), make_world(shared=shared)
    world.run(shop.build(1, 1))
    before = [dict(tree.models) for tree in world.trees]
    was = [live(server) for server in world.servers]
    models = shop.build(2, 2)
    bad = {(w.name, w.version) for w in models if w.name == name}
    second = world.servers[1]
    setattr(second, kind, bad | {(f"{n}__next", v) for n, v in bad if kind != "wrong"})
    for server in world.servers:
        server.watched = {"other": set()}
    with pytest.raises(Refused, match=r" on b:1: .*; all replicas run what they ran before"):
        world.run(models)
    assert [live(server) for server in world.servers] == was
    assert [dict(tree.models) for tree in world.trees] == before
    setattr(second, kind, set())
    world.run(models)
    for server in world.servers:
        assert live(server) == {w.name: (w.version,) for w in models}


def test_a_replica_that_vanishes_is_named_and_the_other_one_serves_what_it_did(
    shared: bool,
) -> None:
    shop, world = Workshop(), make_world(shared=shared)
    world.run(shop.build(1, 1))
    was = live(world.servers[0])
    world.servers[1].ours, world.servers[1].deadly = False, {("deep__next", 2)}
    with pytest.raises(WorldError, match="b:1 does not answer; its tree is the old one"):
        world.run(shop.build(2, 2))
    assert live(world.servers[0]) == was
    assert world.tree.read().torn


def test_a_replica_that_came_later_gets_what_the_others_have(shared: bool) -> None:
    shop, world = Workshop(), make_world(shared=shared)
    models = shop.build(1, 1)
    for tree in world.trees:
        tree.sources |= {w.source: w for w in models}
    alone = World(world.trees[:1], (world.servers[0], world.servers[0]))
    alone.run(models)
    world.run(models)
    assert live(world.servers[1]) == live(world.servers[0])
    assert world.plan(models).steps == ()


def test_one_that_is_behind_makes_a_plan_for_all(shared: bool) -> None:
    shop, world = Workshop(), make_world(shared=shared)
    models = shop.build(1, 1)
    world.run(models)
    world.servers[1].unload("other")
    assert [step.does for step in world.plan(models).steps] == [
        "load other 1 once more: it is not ready"
    ]


def test_as_one_they_count_together_and_are_told_apart() -> None:
    servers = make_world(shared=True).servers
    servers[0].counted, servers[1].counted = {"m": Counts(2, 1, 10)}, {"m": Counts(3, 0, 20)}
    both = replicated(servers)
    assert both.counts("m") == Counts(5, 1, 30)
    assert [name for name, _ in named(both)] == ["a:1", "b:1"]
    assert (both.name, both.run, both.bls_threads) == ("a:1, b:1", "1 1", None)
    assert replicas_of(both) == servers
    assert replicated(servers[:1]) is servers[0]
    assert [name for name, _ in named(servers[0])] == [""]


def test_a_version_that_lies_beside_one_tree_counts_as_beside_for_both() -> None:
    trees = MemoryTree(), MemoryTree()
    config = {"config.pbtxt": b'name: "m"\nbackend: "python"\n'}
    trees[0].models["m"] = HeldModel({1: Held("k")}, config)
    trees[1].models["m"] = HeldModel({1: Held("k", kept=True)})
    found = MirroredTree(trees).read().models["m"]  # type: ignore[arg-type]
    assert found.files == config
    assert found.versions[1].kept


def test_served_configs_tell_the_build_keys_and_telling_loads_nothing_anew() -> None:
    """Another parameter makes Triton load all versions of a model: to one that stays as it is
    nothing is added.
    """
    shop, world = Workshop(), make_world(shared=True)
    world.run(shop.build(1, 1))
    tree = world.trees[0]
    assert {n: said_digests(m.files) for n, m in tree.models.items()} == {
        name: {1: f"{name}-1"} for name in tree.models
    }
    models = shop.build(2, 1)
    configs = []
    for step in world.plan(models).steps:
        if getattr(step, "why", "") == "beside" and step.model == "a":
            configs.append(said_digests(step.files))  # type: ignore[union-attr]
    assert configs == [{1: "a-1"}]
    world.run(models)
    told = {w.name: said_digests(tree.models[w.name].files).get(w.version) for w in models}
    assert {name for name, key in told.items() if key is None} <= {"a", "inner", "runs"}
    assert told["outer"] == "outer-2"
    assert world.plan(models).steps == ()
