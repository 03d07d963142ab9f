"""`mmctl deploy`, `rollback`, `history`, `prune` and `status`: what a target serves, moved."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mmctl.cli import context
from mmctl.cli.render import as_json
from mmctl.errors import InputError, Refused

if TYPE_CHECKING:
    from mmctl.deploy.deployment import Deployment, Place, Standing
    from mmctl.deploy.prune import Old
    from mmctl.deploy.state import Versions
    from mmctl.deploy.steps import Plan

TargetName = Annotated[
    str, typer.Argument(metavar="TARGET", help="`embedded`, or a target of mmctl.yaml.")
]
Names = Annotated[
    list[str] | None, typer.Argument(metavar="NAME...", help="Models or pipelines; all by default.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the plan and stop.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def deploy(
    target: TargetName,
    names: Names = None,
    *,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Bring a running Triton to what was built, without a gap.

    Prints the plan, asks, and applies it: on a terminal it asks, elsewhere it wants --yes. New
    versions load beside the old ones, pipelines answer their golden requests before they take
    traffic, and whatever fails leaves the server as it was. Without names, what is not in the
    workspace is taken out of service.
    """
    from mmctl.deploy.deployment import open_place, plan_forward

    workspace = context.workspace()
    with open_place(workspace, target, context.say) as place:
        deployment = plan_forward(place, names or [], context.say)
        for finding in deployment.gathered.findings:
            context.say(finding.text())
        _carry_out(place, deployment, dry_run=dry_run, yes=yes, json=json)


def rollback(
    target: TargetName,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME...", help="Models or pipelines; what moved last by default."),
    ] = None,
    *,
    to: Annotated[
        int | None, typer.Option("--to", metavar="N", min=1, help="Version; the one before.")
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Serve an earlier version again, as it was, with the versions that it calls."""
    from mmctl.deploy.deployment import open_place, plan_back

    workspace = context.workspace()
    with open_place(workspace, target, context.say) as place:
        deployment = plan_back(place, names or [], to)
        _carry_out(place, deployment, dry_run=dry_run, yes=yes, json=json)


def history(target: TargetName = "embedded", *, json: Json = False) -> None:
    """Every deployment to a target, the oldest first."""
    from mmctl.deploy.deployment import tree_of

    lines = _outcomes(tree_of(context.workspace(), target).ledger())
    if json:
        print(as_json({"target": target, "deployments": lines}))
        return
    for line in lines:
        print("\n".join(render_line(line)))
    if not lines:
        print(f"nothing was deployed to `{target}` yet")


def prune(
    target: TargetName = "embedded",
    *,
    keep: Annotated[int, typer.Option(min=1, help="Versions of each model to keep.")] = 3,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Remove old versions that are not live, and that none which stays calls."""
    from mmctl.deploy.deployment import open_tree
    from mmctl.deploy.deployment import prune as remove
    from mmctl.deploy.prune import plan_prune

    with open_tree(context.workspace(), target, context.say) as tree:
        old = plan_prune(tree.read(), keep)
        tell: Callable[[str], None] = context.say if json else print
        tell("\n".join(render_old(old)))
        is_wanted = bool(old) and not dry_run
        if is_wanted:
            _confirm(f"remove {len(old)} versions?", yes=yes)
            remove(tree, old)
    if json:
        rows = [{"model": o.model, "version": o.version, "bytes": o.bytes} for o in old]
        print(as_json({"target": target, "removed": is_wanted, "versions": rows}))


def status(target: TargetName = "embedded", *, json: Json = False) -> None:
    """Which versions of what a target serves, and which it holds."""
    from mmctl.deploy.deployment import open_place, standings

    with open_place(context.workspace(), target, context.say, alone=False) as place:
        rows = standings(place)
        torn = place.tree.read().torn
    if json:
        values = [_standing(row) for row in rows]
        print(as_json({"target": target, "models": values, "cut_short": torn}))
        return
    print("\n".join(render_standings(rows)))
    if torn:
        context.say("the last deployment was cut short: run `mmctl deploy` again")


def _carry_out(
    place: Place, deployment: Deployment, *, dry_run: bool, yes: bool, json: bool
) -> None:
    from mmctl.deploy.deployment import carry_out

    plan = deployment.plan
    is_idle = not plan.steps and not deployment.is_torn
    tell: Callable[[str], None] = context.say if json else print
    tell("\n".join(render_plan(place.name, plan)))
    if not (dry_run or is_idle):
        _confirm(f"apply these {len(plan.steps)} steps?", yes=yes)
        carry_out(place, deployment, context.say)
    if json:
        print(as_json({**plan_values(place.name, plan), "applied": not (dry_run or is_idle)}))
    elif not (dry_run or is_idle):
        print("done: " + (", ".join(_moved(plan)) or "all is ready"))


def _confirm(question: str, *, yes: bool) -> None:
    """Raises Refused when the answer is no, InputError when there is nobody to ask."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise InputError("nobody is there to confirm", hint="pass `--yes`, or `--dry-run`")
    if not typer.confirm(question, err=True):
        raise Refused("nothing was changed")


def render_plan(target: str, plan: Plan) -> list[str]:
    """The steps as they will be done, and what they amount to."""
    lines = [f"warning: {text}" for text in plan.warnings]
    if not plan.steps:
        return [*lines, f"{target}: nothing to do"]
    count = f"{len(plan.steps)} step{'' if len(plan.steps) == 1 else 's'}"
    lines.append(f"{target}: {count}, {_megabytes(plan.extra_bytes)} more in memory meanwhile")
    width = len(str(len(plan.steps)))
    lines += [f"  {n:>{width}} {step.does}" for n, step in enumerate(plan.steps, 1)]
    return lines + [f"  {line}" for line in _moved(plan)]


def _moved(plan: Plan) -> list[str]:
    return [f"{name} {_shown(m.before)} -> {_shown(m.after)}" for name, m in plan.moves.items()]


def plan_values(target: str, plan: Plan) -> dict[str, object]:
    """A plan as `--json` tells it."""
    from mmctl.deploy.steps import as_value

    moves = {n: {"from": list(m.before), "to": list(m.after)} for n, m in plan.moves.items()}
    return {
        "target": target,
        "steps": [as_value(step) for step in plan.steps],
        "moves": moves,
        "warnings": list(plan.warnings),
        "extra_bytes": plan.extra_bytes,
    }


def render_standings(rows: Sequence[Standing]) -> list[str]:
    if not rows:
        return ["it serves nothing"]
    table = [("model", "live", "state", "holds", "build key")]
    for row in rows:
        held = ", ".join(map(str, row.held))
        key = row.keys.get(max(row.live, default=0), "")[:12]
        table.append((row.model, _shown(row.live), row.state, held, key))
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in table
    ]
    return lines + [f"{row.model}: {row.reason}" for row in rows if row.reason]


def _standing(row: Standing) -> dict[str, object]:
    return {
        "model": row.model,
        "live": list(row.live),
        "ready": list(row.ready),
        "state": row.state,
        "versions": {str(version): key for version, key in row.keys.items()},
        "reason": row.reason,
    }


def render_line(line: Mapping[str, Any]) -> list[str]:
    """A deployment in a line, and one more for each model that it moved."""
    what = " ".join((line["what"], *line["names"]))
    head = f"{line['time']}  {what}: {line['outcome']}"
    if reason := line.get("reason"):
        head += f": {reason}"
    moves = [
        f"  {name} {_shown(tuple(was))} -> {_shown(tuple(will))}"
        for name, (was, will) in sorted(line["models"].items())
        if was != will
    ]
    return [head, *moves]


def _outcomes(lines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each deployment once: with its outcome, or as cut short when nobody lived to write it."""
    found: list[dict[str, Any]] = []
    for line in lines:
        if found and found[-1]["outcome"] == "begun":
            found.pop() if line["outcome"] != "begun" else found[-1].update(outcome="cut short")
        found.append(dict(line))
    if found and found[-1]["outcome"] == "begun":
        found[-1]["outcome"] = "cut short"
    return found


def render_old(old: Sequence[Old]) -> list[str]:
    if not old:
        return ["nothing to remove"]
    total = _megabytes(sum(o.bytes for o in old))
    rows = [f"  {o.model} {o.version}  {_megabytes(o.bytes)}" for o in old]
    return [f"{len(old)} old versions, {total}:", *rows]


def _shown(versions: Versions) -> str:
    return " and ".join(map(str, versions)) or "none"


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB"
