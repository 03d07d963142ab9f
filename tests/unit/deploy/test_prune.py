"""Which old versions may go."""

from __future__ import annotations

from deploy_worlds import ensemble, leaf

from mmctl.deploy.prune import plan_prune
from mmctl.deploy.state import Held, HeldModel, TreeState


def model(
    versions: range, live: int, config: str, calls: dict[int, dict[str, int]] | None = None
) -> HeldModel:
    held = {v: Held(str(v), 10, calls=(calls or {}).get(v, {})) for v in versions}
    policy = f"version_policy {{ specific {{ versions: [ {live} ] }} }}"
    return HeldModel(held, {"config.pbtxt": f"{config}\n{policy}".encode()})


def old(tree: TreeState, keep: int = 3) -> list[tuple[str, int]]:
    return [(o.model, o.version) for o in plan_prune(tree, keep)]


def test_the_newest_stay_and_the_live_one() -> None:
    tree = TreeState({"m": model(range(1, 8), 2, leaf())})
    assert old(tree) == [("m", 1), ("m", 3), ("m", 4)]


def test_a_version_that_one_which_stays_calls_stays_too() -> None:
    calls = {1: {"m": 1}, 2: {"m": 3}}
    models = {"m": model(range(1, 8), 7, leaf()), "p": model(range(1, 3), 2, leaf(), calls)}
    assert old(TreeState(models)) == [("m", 2), ("m", 4)]


def test_a_version_that_is_called_under_its_pin_stays() -> None:
    pinned = ensemble("m").replace("model_version: -1", "model_version: 2")
    models = {"m": model(range(1, 8), 7, leaf()), "p": model(range(1, 2), 1, pinned)}
    assert old(TreeState(models)) == [("m", 1), ("m", 3), ("m", 4)]


def test_what_is_kept_beside_the_tree_is_pruned_as_well() -> None:
    held = {v: Held(str(v), kept=True) for v in range(1, 6)}
    assert old(TreeState({"m": HeldModel(held)})) == [("m", 1), ("m", 2)]
