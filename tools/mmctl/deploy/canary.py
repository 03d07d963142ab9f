"""A canary: the candidate of a model answers a share of its requests, beside the live one. Pure.

What the candidate calls and is not live yet is served under candidates' names as well, so that a
canary touches nothing that is live: to undo it is to remove the candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mmctl.deploy.draft import Draft
from mmctl.deploy.plan import plan_deploy
from mmctl.deploy.state import Files, ServerState, TreeState, Wanted, config_of
from mmctl.deploy.steps import Plan
from mmctl.errors import InputError, Refused
from mmctl.triton.pbtxt import signature_of
from mmctl.triton.repository import NEXT

WAYS_OUT = "run `mmctl promote` to make it the live one, or `mmctl rollback` to take it away"


@dataclass(frozen=True, slots=True)
class Canary:
    """One that stands: which version of which model takes how many percent of the requests."""

    model: str
    version: int
    share: float


def standing(tree: TreeState) -> Canary | None:
    """There is one at a time."""
    for name, model in tree.models.items():
        if name.endswith(NEXT) and model.share:
            return Canary(name.removesuffix(NEXT), max(model.live), model.share)
    return None


def refuse_beside(canary: Canary | None) -> None:
    """Raises Refused while a canary stands."""
    if canary is not None:
        raise Refused(f"a canary of `{canary.model}` {canary.version} stands", hint=WAYS_OUT)


def the_canary(tree: TreeState, names: Sequence[str]) -> Canary:
    """The one that stands, which `names` may name. Raises InputError without it."""
    canary = standing(tree)
    if canary is None:
        raise InputError("no canary stands", hint="`mmctl deploy TARGET NAME --canary 10%` does it")
    if {*names} - {canary.model}:
        refuse_beside(canary)
    return canary


def plan_canary(
    wanted: Sequence[Wanted], name: str, share: float, tree: TreeState, server: ServerState
) -> Plan:
    """Steps after which the candidate of `name` takes `share` percent of its requests.

    `wanted` are the model and all that it calls, callees first. Raises Refused when another canary
    stands, when the same requests cannot go to both, and for what could not be promoted;
    InputError when `name` is not among `wanted`.
    """
    target = next((w for w in wanted if w.name == name), None)
    if target is None:
        raise InputError(f"`{name}` is no model of its own, so it cannot be served beside another")
    canary = standing(tree)
    if canary is not None and (canary.model, canary.version) != (name, target.version):
        refuse_beside(canary)
    draft = Draft(tree, server)
    draft.clear_up()
    if not draft.live(name):
        raise Refused(
            f"`{name}` is not served yet: there is nothing that a canary could stand beside",
            hint="deploy it without `--canary`",
        )
    changing = _changing(wanted, draft)
    if target not in changing:
        return draft.plan(tree, wanted, [f"`{name}` {target.version} is live already"])
    _refuse_other_requests(target, draft.now[name].files)
    plan_deploy(changing, tree, server, trial=False)  # raises what promoting it would
    stand_ins: list[str] = []
    for w in changing:
        own_share = share if w is target else 0.0
        draft.candidate(w, stand_ins, is_tried=w.samples > 0, stays=True, share=own_share)
        stand_ins.append(w.name)
    draft.sweep()
    untried = [f"`{w.name}` has no golden requests: it is served untried"]
    is_untried = target.pipeline and not target.samples
    return draft.plan(tree, wanted, untried if is_untried else [])


def plan_without(tree: TreeState, server: ServerState) -> Plan:
    """Steps that take the candidates away."""
    draft = Draft(tree, server)
    draft.clear_up()
    draft.sweep(canary=True)
    return draft.plan(tree, (), ())


def _changing(wanted: Sequence[Wanted], draft: Draft) -> list[Wanted]:
    """Those that are not live as they shall be, and those that call them."""
    found: dict[str, Wanted] = {}
    for w in wanted:
        live = draft.live(w.name)
        is_live = w.version in live and not draft.differs(w, live)
        if not is_live or {*w.held.calls} & {*found}:
            found[w.name] = w
    return list(found.values())


def _refuse_other_requests(wanted: Wanted, live: Files) -> None:
    old, new = (signature_of(config_of(files)) for files in (live, wanted.files))
    takes = {spec.name: spec.type for spec in new.inputs}
    needed = {spec.name for spec in old.inputs if not spec.optional}
    told = [f"input `{s}`" for s in old.inputs if takes.get(s.name) != s.type]
    told += [f"input `{s}`" for s in new.inputs if not s.optional and s.name not in needed]
    told += [f"output `{s}`" for s in old.outputs if s not in new.outputs]
    if old.max_batch > new.max_batch or bool(old.max_batch) != bool(new.max_batch):
        told.append(f"`max_batch` {new.max_batch}, not {old.max_batch}")
    if told:
        raise Refused(
            f"`{wanted.name}` {wanted.version} cannot answer what the live one is asked; they "
            f"differ in {', '.join(dict.fromkeys(told))}",
            hint="deploy it without `--canary`, when its callers are ready for it",
        )
