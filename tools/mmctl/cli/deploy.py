"""`mmctl deploy` and its sisters: what a target serves, moved, tried, taken back and told."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mmctl.cli import context
from mmctl.cli.context import Json
from mmctl.cli.render import aligned, as_json
from mmctl.errors import InputError

if TYPE_CHECKING:
    from mmctl.deploy.comparison import Comparison, Since
    from mmctl.deploy.deployment import Deployment, Place, Standing
    from mmctl.deploy.prune import Old
    from mmctl.deploy.state import Kind, Share, Versions
    from mmctl.deploy.steps import Plan

TargetName = Annotated[
    str, typer.Argument(metavar="TARGET", help="`embedded`, `compose`, or a target of mmctl.yaml.")
]
Names = Annotated[
    list[str] | None, typer.Argument(metavar="NAME...", help="Models or pipelines; all by default.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the plan and stop.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def deploy(
    target: TargetName,
    names: Names = None,
    *,
    canary: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE", help="Serve it beside the live one, for so many requests: `10%`."
        ),
    ] = None,
    shadow: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE", help="The same with copies of them: nobody gets its answers."
        ),
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Bring a running Triton to what was built, without a gap.

    Prints the plan, asks, and applies it: on a terminal it asks, elsewhere it wants --yes. New
    versions load beside the old ones, pipelines answer their golden requests before they take
    traffic, and whatever fails leaves the server as it was. Without names, what is not in the
    workspace is taken out of service. With --canary the live version goes on, and clients of mmctl
    send a share of their requests to the new one, until `mmctl promote` or `mmctl rollback`; with
    --shadow they send copies of that share, and drop what the new one answers.
    """
    from mmctl.deploy.deployment import open_place, plan_beside, plan_forward

    share = parse_beside({"canary": canary, "shadow": shadow})
    if share is not None and len(names or []) != 1:
        raise InputError(f"`--{share.kind}` is for one model or pipeline", hint="name it")
    workspace = context.workspace()
    with open_place(workspace, target, context.say) as place:
        if share is None:
            deployment = plan_forward(place, names or [], context.say)
        else:
            deployment = plan_beside(place, (names or [])[0], share, context.say)
        for finding in deployment.gathered.findings:
            context.say(finding.text())
        _carry_out(place, deployment, dry_run=dry_run, yes=yes, json=json)


def parse_beside(asked: Mapping[Kind, str | None]) -> Share | None:
    """The one that is asked for, if any. Raises InputError."""
    shares = [parse_share(text, kind) for kind, text in asked.items() if text is not None]
    if len(shares) > 1:
        raise InputError("`--canary` and `--shadow` exclude each other", hint="take one")
    return shares[0] if shares else None


def parse_share(text: str, kind: Kind = "canary") -> Share:
    """Percent, of which clients tell hundredths apart. Raises InputError."""
    from mmctl.deploy.state import Share

    match = re.fullmatch(r"(\d{1,3}(?:\.\d{1,2})?) ?%", text)
    if match is None or not 0 < (percent := float(match[1])) <= 100:
        raise InputError(
            f"`--{kind} {text}`: not a share of the requests", hint="write `10%`, or `0.5%`"
        )
    return Share(percent, kind)


def promote(
    target: TargetName,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Whose candidate.")] = None,
    *,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Make the candidate of a canary or shadow the live version."""
    from mmctl.deploy.deployment import open_place, plan_promotion

    workspace = context.workspace()
    with open_place(workspace, target, context.say) as place:
        deployment = plan_promotion(place, [name] if name else [])
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
    """Serve an earlier version again, as it was, with the versions that it calls.

    While a canary or shadow stands, it takes that away, and nothing else.
    """
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
            if not yes:
                context.confirm(f"remove {len(old)} versions?", "pass `--yes`, or `--dry-run`")
            remove(tree, old)
    if json:
        rows = [{"model": o.model, "version": o.version, "bytes": o.bytes} for o in old]
        print(as_json({"target": target, "removed": is_wanted, "versions": rows}))


def status(
    target: TargetName = "embedded",
    *,
    compare: Annotated[
        int,
        typer.Option(
            metavar="N", min=0, help="Send N of the samples to the candidate and the live version."
        ),
    ] = 0,
    json: Json = False,
) -> None:
    """Which versions of what a target serves, and which it holds; how a canary or shadow does."""
    from mmctl.deploy.comparison import compare_candidate
    from mmctl.deploy.deployment import open_place, standings

    with open_place(context.workspace(), target, context.say, alone=False) as place:
        rows = standings(place)
        torn = place.tree.read().torn
        comparison = compare_candidate(place, compare)
    if json:
        values = [_standing(row) for row in rows]
        beside = comparison and asdict(comparison)
        answer = {"target": target, "models": values, "comparison": beside, "cut_short": torn}
        print(as_json(answer))
        return
    print("\n".join(render_standings(rows)))
    if comparison is not None:
        print("\n".join(("", *render_comparison(comparison))))
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
        if not yes:
            context.confirm(f"apply these {len(plan.steps)} steps?", "pass `--yes`, or `--dry-run`")
        carry_out(place, deployment, context.say)
    if json:
        print(as_json({**plan_values(place.name, plan), "applied": not (dry_run or is_idle)}))
    elif not (dry_run or is_idle):
        print("done: " + (", ".join(_moved(plan)) or "all is ready"))


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
    several = any(row.replica for row in rows)
    table = [("model", *(["replica"] if several else []), "live", "state", "holds", "build key")]
    for row in rows:
        held = ", ".join(map(str, row.held))
        key = row.keys.get(max(row.live, default=0), "")[:12]
        replica = [row.replica] if several else []
        table.append((row.model, *replica, _shown(row.live), row.state, held, key))
    reasons = (
        f"{row.model}{f' on {row.replica}' if several else ''}: {row.reason}"
        for row in rows
        if row.reason
    )
    return [*aligned(table, numbers_right=False), *reasons]


def render_comparison(found: Comparison) -> list[str]:
    """The live one and the candidate, side by side."""
    of, share = found.of, found.of.share
    table = [(of.model, "requests", "failed", "mean")]
    for name, counts in (("live", found.live), ("candidate", found.candidate)):
        failed = f"{counts.failed / counts.requests:.1%}" if counts.requests else "-"
        mean = "-" if counts.mean_ms is None else f"{counts.mean_ms:.2f} ms"
        table.append((name, str(counts.requests), failed, mean))
    verb = {"canary": "go to", "shadow": "are copied to"}[share.kind]
    head = f"{share.kind}: {share.percent:g} % of the requests for {of.model} {verb} {of.version}"
    lines = [head, *aligned(table, numbers_right=False)]
    lines.append(f"counted {SINCE[found.since].format(kind=share.kind)}")
    if (answers := found.answers) is not None:
        lines.append(f"{answers.differing} of {answers.asked} answers differ")
        lines += [answers.first] if answers.first else []
    return lines


SINCE: Mapping[Since, str] = {
    "began": "since the {kind} began",
    "restart": "since the server was started again, after the {kind} began",
    "load": "since each was loaded: Triton does not say whether that was before the {kind} began",
}


def _standing(row: Standing) -> dict[str, object]:
    return {
        "model": row.model,
        "live": list(row.live),
        "ready": list(row.ready),
        "state": row.state,
        "versions": {str(version): key for version, key in row.keys.items()},
        "reason": row.reason,
        **({"replica": row.replica} if row.replica else {}),
    }


def render_line(line: Mapping[str, Any]) -> list[str]:
    """A deployment in a line, and one more for each model that it moved."""
    share = [f"{line['share']:g}%"] if "share" in line else []
    what = " ".join((line["what"], *line["names"], *share))
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
