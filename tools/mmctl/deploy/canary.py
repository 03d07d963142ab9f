"""A candidate beside the live one, with a share of its requests: a canary or a shadow. Pure.

A canary answers its share; a shadow is sent copies of its share, and nobody gets its answers. What
the candidate calls and is not live yet is served under candidates' names as well, so that nothing
that is live is touched: to undo it is to remove the candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mmctl.deploy.draft import Draft
from mmctl.deploy.plan import plan_deploy
from mmctl.deploy.state import Files, ServerState, Share, TreeState, Wanted, config_of
from mmctl.deploy.steps import Plan
from mmctl.errors import InputError, Refused
from mmctl.triton.pbtxt import signature_of
from mmctl.triton.repository import NEXT

WAYS_OUT = "run `mmctl promote` to make it the live one, or `mmctl rollback` to take it away"


@dataclass(frozen=True, slots=True)
class Candidate:
    """One that stands: which version of which model, and what it gets of the requests."""

    model: str
    version: int
    share: Share


def standing(tree: TreeState) -> Candidate | None:
    """There is one at a time."""
    for name, model in tree.models.items():
        if name.endswith(NEXT) and model.share:
            return Candidate(name.removesuffix(NEXT), max(model.live), model.share)
    return None


def refuse_beside(candidate: Candidate | None) -> None:
    """Raises Refused while a candidate stands."""
    if candidate is not None:
        what = f"a {candidate.share.kind} of `{candidate.model}` {candidate.version}"
        raise Refused(f"{what} stands", hint=WAYS_OUT)


def the_candidate(tree: TreeState, names: Sequence[str]) -> Candidate:
    """The one that stands, which `names` may name. Raises InputError without it."""
    candidate = standing(tree)
    if candidate is None:
        raise InputError(
            "no canary stands, and no shadow",
            hint="`mmctl deploy TARGET NAME --canary 10%` does it, or `--shadow 10%`",
        )
    if {*names} - {candidate.model}:
        refuse_beside(candidate)
    return candidate


def plan_candidate(
    wanted: Sequence[Wanted], name: str, share: Share, tree: TreeState, server: ServerState
) -> Plan:
    """Steps after which the candidate of `name` gets this share of its requests.

    `wanted` are the model and all that it calls, callees first. Raises Refused when another
    candidate stands, when the same requests cannot go to both, and for what could not be promoted;
    InputError when `name` is not among `wanted`.
    """
    target = next((w for w in wanted if w.name == name), None)
    if target is None:
        raise InputError(f"`{name}` is no model of its own, so it cannot be served beside another")
    there = standing(tree)
    if there is not None and (there.model, there.version) != (name, target.version):
        refuse_beside(there)
    draft = Draft(tree, server)
    draft.clear_up()
    if not draft.live(name):
        raise Refused(
            f"`{name}` is not served yet: there is nothing that a {share.kind} could stand beside",
            hint=f"deploy it without `--{share.kind}`",
        )
    changing = _changing(wanted, draft)
    if target not in changing:
        return draft.plan(tree, wanted, [f"`{name}` {target.version} is live already"])
    _refuse_other_requests(target, draft.now[name].files, share)
    plan_deploy(changing, tree, server, trial=False)  # raises what promoting it would
    stand_ins: list[str] = []
    for w in changing:
        own_share = share if w is target else None
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
    draft.sweep(shares=True)
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


def _refuse_other_requests(wanted: Wanted, live: Files, share: Share) -> None:
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
            hint=f"deploy it without `--{share.kind}`, when its callers are ready for it",
        )
