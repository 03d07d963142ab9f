"""Pipelines of a plan that may call more at once than the running server has threads for. Pure.

How many calls one Python model may have under way is set when Triton starts, and no load changes
it: a pipeline that wants more waits for itself, and its time limits count on.
"""

from __future__ import annotations

from dataclasses import replace

from mmctl.deploy.state import PLAN
from mmctl.deploy.steps import Load, Plan
from mmctl.server.flags import BLS_THREADS, bls_threads_flag
from mmctl.server.place import calls_at_once_of
from mmctl.triton.repository import NEXT


def warn_of_threads(plan: Plan, started_with: int | None) -> Plan:
    """The plan with a warning for each such pipeline that it loads.

    `started_with` None: nobody knows, so it is held to what Triton takes by itself.
    """
    needs: dict[str, int] = {}
    for step in plan.steps:
        if isinstance(step, Load):
            name = step.model.removesuffix(NEXT)
            plans = (step.files.get(f"{version}/{PLAN}", b"{}") for version in step.live)
            needs[name] = max(needs.get(name, 0), *map(calls_at_once_of, plans))
    has, whose = BLS_THREADS, "Triton has threads for {}, unless it was told otherwise"
    if started_with is not None:
        has, whose = started_with, "this server was started with threads for {}"
    told = [
        f"`{name}` may have {most} calls under way, and {whose.format(has)}: the others wait; "
        f"start it again with `{bls_threads_flag(most)}`, as `mmctl serve` does"
        for name, most in needs.items()
        if most > has
    ]
    return replace(plan, warnings=(*plan.warnings, *told))
