"""Wanted, held and running models -> the steps of a deployment. Pure.

Callees come before their callers. A new version is loaded beside the one that callers still pin;
a pipeline is tried under its candidate's name and then switches by one load. Versions of a model
share one config, and an ensemble is nothing but its config: where none serves both the old and the
new version, the new one's candidate stands in for it until its callers have switched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from mmctl.deploy.draft import Draft, called_by, callees_first
from mmctl.deploy.state import (
    HeldModel,
    ServerState,
    TreeState,
    Versions,
    Wanted,
    is_ensemble,
)
from mmctl.deploy.steps import Plan
from mmctl.errors import Refused
from mmctl.triton.repository import NEXT


def plan_deploy(
    wanted: Sequence[Wanted],
    tree: TreeState,
    server: ServerState,
    *,
    whole: bool = False,
    trial: bool = True,
) -> Plan:
    """Steps that bring a target to `wanted`, callees first; none when it is there. A canary or a
    shadow ends.

    `whole`: what the target serves beside `wanted` goes. `trial`: pipelines answer their golden
    requests first. Raises Refused when a number is taken by another content, or when versions
    that must be served side by side cannot be.
    """
    _refuse_taken_numbers(wanted, tree)
    draft = Draft(tree, server)
    draft.clear_up()
    leaving = _leaving(wanted, draft.now, whole=whole)
    finals = {w.name: _final_versions(w, wanted, draft, leaving) for w in wanted}
    changing = [w for w in wanted if draft.differs(w, finals[w.name])]
    stand_ins, warnings = _bring(changing, finals, draft, trial=trial)
    draft.leave(leaving)
    _switch(changing, finals, draft, stand_ins)
    draft.leave(leaving)
    for w in reversed(changing):
        if draft.differs(w, finals[w.name]):
            draft.serve(w, finals[w.name], [])
    draft.sweep(shares=True)
    return draft.plan(tree, wanted, warnings)


def _bring(
    changing: Iterable[Wanted], finals: Mapping[str, Versions], draft: Draft, *, trial: bool
) -> tuple[list[str], list[str]]:
    """Every model in its new version, callees first: at once, beside the old one, or as a candidate
    that stands in. The models with such candidates, and warnings.
    """
    stand_ins: list[str] = []
    warnings: list[str] = []
    for w in changing:
        draft.refuse_stale(w)
        draft.copy(w)
        is_held = bool(draft.pinned(w.name) - {w.version})
        stands_in = is_held and not draft.fits_beside(w)
        is_tried = trial and w.samples > 0 and w.version not in draft.live(w.name)
        if trial and w.pipeline and not w.samples and w.version not in draft.live(w.name):
            warnings.append(f"`{w.name}` has no golden requests: it is served untried")
        if stands_in or is_tried:
            draft.candidate(w, stand_ins, is_tried=is_tried, stays=stands_in)
        if stands_in:
            stand_ins.append(w.name)
        else:
            called = draft.pinned(w.name) & {*draft.live(w.name)} if is_held else set()
            draft.serve(w, tuple(sorted({*finals[w.name], *called})), stand_ins)
    return stand_ins, warnings


def _switch(
    changing: Sequence[Wanted],
    finals: Mapping[str, Versions],
    draft: Draft,
    stand_ins: Sequence[str],
) -> None:
    """Old versions that nobody calls go out of service, callers first, so that what they called
    can move; then the models move for which candidates stand in.
    """
    for w in reversed(changing):
        if w.name not in stand_ins and not draft.pinned(w.name) - {*finals[w.name]}:
            draft.retire(w, finals[w.name], stand_ins)
    for w in reversed(changing):
        if w.name in stand_ins:
            draft.serve(w, finals[w.name], [name for name in stand_ins if name != w.name])


def _refuse_taken_numbers(wanted: Iterable[Wanted], tree: TreeState) -> None:
    for w in wanted:
        known = dict(tree.keys.get(w.name, {}))
        if w.name in tree.models:
            known |= {v: held.key for v, held in tree.models[w.name].versions.items()}
        if known.get(w.version, w.held.key) != w.held.key:
            taken = max(known)
            raise Refused(
                f"`{w.name}`: the target had another version {w.version} (build key "
                f"{known[w.version][:12]}, not {w.held.key[:12]}), and Triton's cache may answer "
                "for it",
                hint=f"restore the model.lock whose history has it, or add a row for {taken} to "
                f"the history in model_repository/{w.name}/model.lock and build again: the next "
                f"number is {taken + 1}",
            )


def _leaving(
    wanted: Sequence[Wanted], now: Mapping[str, HeldModel], *, whole: bool
) -> tuple[str, ...]:
    """Models that go, callers first: parts of the wanted pipelines that these have no more, and
    with `whole` everything that is not wanted.
    """
    names = {w.name for w in wanted}
    parts = tuple(f"{w.name}__" for w in wanted)
    served = [name for name in reversed(callees_first(now)) if now[name].files]
    others = [name for name in served if name not in names and not name.endswith(NEXT)]
    return tuple(name for name in others if whole or name.startswith(parts))


def _final_versions(
    wanted: Wanted, all_wanted: Iterable[Wanted], draft: Draft, leaving: Iterable[str]
) -> Versions:
    """The wanted version, and those that pipelines which stay as they are call.

    Raises Refused for an ensemble that would need two.
    """
    candidates = [name for name in draft.now if name.endswith(NEXT)]
    moving = {*(w.name for w in all_wanted), *leaving, *candidates}
    staying = draft.pinned(wanted.name, without=moving) & {*draft.live(wanted.name)}
    staying -= {wanted.version}
    if staying and is_ensemble(wanted.files):
        callers = sorted(
            name
            for name, model in draft.now.items()
            if name not in moving and any(callee == wanted.name for callee, _ in called_by(model))
        )
        shown = ", ".join(f"`{name}`" for name in callers)
        raise Refused(
            f"`{wanted.name}`: {shown} calls version {min(staying)} of it, and an ensemble has one "
            "version at a time",
            hint=f"move them together: name {' '.join(callers)} as well",
        )
    return tuple(sorted({wanted.version, *staying}))
