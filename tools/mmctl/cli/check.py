"""`mmctl check`: say what is wrong before a server sees it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mmctl.cli import context
from mmctl.cli.context import Json
from mmctl.cli.render import as_json
from mmctl.diagnostics import Finding, Rule, Severity, counted, in_order, nearest
from mmctl.errors import InputError, InvalidFiles

if TYPE_CHECKING:
    from mmctl.building.check import Checked, Subject
    from mmctl.lint.repository import Target
    from mmctl.server.runtime import Runtime

Paths = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="PATH...",
        help="A repository, a model's folder, a config.pbtxt or a pipeline.yaml; "
        "by default the workspace.",
    ),
]
Codes = Annotated[
    list[str] | None,
    typer.Option(metavar="CODE,...", help="Only findings whose code begins like one of these."),
]


def check(
    paths: Paths = None,
    target: Annotated[
        str | None, typer.Option(metavar="NAME", help="Judge for this target of mmctl.yaml.")
    ] = None,
    triton: Annotated[
        str | None, typer.Option(metavar="RELEASE", help='Judge for this Triton, "24.10".')
    ] = None,
    gpus: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Judge for a server with N GPUs.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Fill a placeholder of a template."),
    ] = None,
    select: Codes = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(metavar="CODE,...", help="Leave out findings whose code begins like these."),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Warnings are mistakes too: exit 1.")
    ] = False,
    explain: Annotated[
        str | None,
        typer.Option(metavar="CODE", help="Say what a code means, with an example, and stop."),
    ] = None,
    fix: Annotated[
        bool, typer.Option("--fix", help="Repair what has one right answer; shows a diff first.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --fix: write without asking.")] = False,
    run: Annotated[
        bool,
        typer.Option("--run", help="Also load a copy on a private Triton, and ask every model."),
    ] = False,
    input_: Annotated[
        list[str] | None,
        typer.Option("--input", metavar="MODEL=FILE", help="With --run: ask with this sample."),
    ] = None,
    json: Json = False,
    sarif: Annotated[
        bool, typer.Option("--sarif", help="Print SARIF 2.1.0, for code review tools.")
    ] = False,
) -> None:
    """Find what is wrong with model repositories and pipelines; starts no server without --run."""
    from mmctl.lint import RULES

    if explain is not None:
        print(explained(_rule(explain, RULES)))
        return
    if json and sarif:
        raise InputError("`--json` and `--sarif` exclude each other", hint="pass one of them")
    wanted = _prefixes("--select", select, RULES) or ("",)
    unwanted = _prefixes("--ignore", ignore, RULES)
    if input_ and not run:
        raise InputError("`--input` is for `--run`", hint="add `--run`")
    samples = {name: Path(file) for name, file in _pairs("--input", input_ or []).items()}
    values = _pairs("--set", set_ or [])
    judged_for = _target(target, triton, gpus)
    checked = _checked(paths or [], judged_for, values)
    if fix and _fixed(checked, yes=yes):
        checked = _checked(paths or [], judged_for, values)
    if run:
        checked = _with_run(checked, samples)
    findings = [
        finding
        for finding in checked.findings
        if finding.code.startswith(wanted) and not finding.code.startswith(unwanted)
    ]
    _print(findings, checked, json=json, sarif=sarif)
    raise typer.Exit(1 if _fails(findings, strict=strict) else 0)


def _checked(paths: Sequence[Path], target: Target, values: dict[str, str]) -> Checked:
    from mmctl.building.check import check_paths, check_workspace

    if paths:
        return check_paths(paths, target, values)
    try:
        workspace = context.workspace()
    except InvalidFiles:
        raise
    except InputError as error:
        hint = "name what to check, `mmctl check REPOSITORY`, or pass `-C DIR` for a workspace"
        raise InputError(error.message, hint=hint) from None
    return check_workspace(workspace, target, values)


def _target(name: str | None, triton: str | None, gpus: int | None) -> Target:
    """What findings rest on: a target of mmctl.yaml, or what the options say."""
    from dataclasses import replace

    from mmctl.building.check import target_of
    from mmctl.lint.repository import Target
    from mmctl.triton.releases import parse_release

    known = target_of(context.workspace(), name) if name is not None else Target()
    if triton is not None:
        known = replace(known, release=parse_release(triton), tensorrt=None)
    return known if gpus is None else replace(known, gpus=gpus)


def _pairs(option: str, texts: Iterable[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InputError(f"`{option} {text}`: no NAME=VALUE", hint=f"write {option} a=8, say")
        found[name] = value
    return found


def _fixed(checked: Checked, *, yes: bool) -> bool:
    """Repair what can be repaired; False when nothing was written."""
    from mmctl.lint.fix import fix_repository, render_diff, write_fixes

    fixed = [f for s in checked.subjects for f in fix_repository(s.repository, s.models)]
    if not fixed:
        context.say("nothing that has one right answer")
        return False
    context.say(render_diff(fixed).rstrip())
    if not yes:
        context.confirm("write this?", "pass `--yes`")
    write_fixes(fixed)
    context.say("")
    return True


def _with_run(checked: Checked, samples: dict[str, Path]) -> Checked:
    """With what only a run shows, each repository on a server of its own."""
    from dataclasses import replace

    run = [f for subject in checked.subjects for f in _run_findings(subject, samples)]
    # A run says with Triton's own words what was foreseen: once is enough.
    seen = {(finding.code, finding.path, finding.line) for finding in run}
    found = [f for f in checked.findings if (f.code, f.path, f.line) not in seen] + run
    return replace(checked, findings=in_order(found))


def _run_findings(subject: Subject, samples: dict[str, Path]) -> list[Finding]:
    from mmctl.trials.runcheck import run_check

    if (root := subject.root) is None:
        return []
    state, runtime = _runtime_for(subject)
    shown = {model.path: model.shown for model in subject.repository.models.values()}
    return run_check(
        root,
        say=context.say,
        state=state,
        models=() if len(subject.models) == len(shown) else subject.models,
        inputs=samples,
        shown=lambda path: _shown_path(path, shown),
        runtime=runtime,
    )


def _shown_path(path: Path, shown: dict[Path, str]) -> str:
    """A file of a model as the static findings name it."""
    for folder, name in shown.items():
        if path.is_relative_to(folder):
            return f"{name}/{path.relative_to(folder)}".removesuffix("/.")
    return str(path)


def _runtime_for(subject: Subject) -> tuple[Path, Runtime]:
    """Where a server's own files go, and the server: the workspace's, else one for this user."""
    from mmctl.server.install import ensure_bare_runtime, ensure_runtime
    from mmctl.workspace import find_workspace

    try:
        workspace = subject.workspace or find_workspace(Path.cwd())
    except InputError:
        state = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mmctl"
        return state, ensure_bare_runtime(state, context.say)
    if subject.workspace is not None:
        from mmctl.building.build import build

        build(workspace, [], context.say)
    return workspace.state, ensure_runtime(workspace, context.say)


def _prefixes(option: str, given: Iterable[str] | None, rules: dict[str, Rule]) -> tuple[str, ...]:
    prefixes = tuple(word.strip().upper() for text in given or () for word in text.split(","))
    for prefix in prefixes:
        if not prefix or not any(code.startswith(prefix) for code in rules):
            raise InputError(
                f"`{option}`: no code begins with `{prefix}`", hint=nearest(prefix, rules)
            )
    return prefixes


def _rule(code: str, rules: dict[str, Rule]) -> Rule:
    if found := rules.get(code.upper()):
        return found
    raise InputError(f"`{code}` is no code of a finding", hint=nearest(code.upper(), rules))


def explained(rule: Rule) -> str:
    """For people: what the code means, why it is a mistake, and how the right text looks."""
    lines = [f"{rule.code}: {rule.title} ({rule.severity})", "", rule.explanation]
    for title, text in (("wrong", rule.wrong), ("right", rule.right)):
        if text:
            lines += ["", f"{title}:", *(f"    {line}" for line in text.splitlines())]
    return "\n".join(lines)


def shown(finding: Finding) -> str:
    """One finding as text; errors are the rule, so only the others name their severity."""
    text = finding.text()
    if finding.severity is Severity.ERROR:
        return text
    return text.replace(f" {finding.code} ", f" {finding.code} {finding.severity}: ", 1)


def _print(findings: Sequence[Finding], checked: Checked, *, json: bool, sarif: bool) -> None:
    if json:
        print(as_json({"findings": [finding.as_json() for finding in findings]}))
    elif sarif:
        from mmctl.cli.sarif import render_sarif

        print(render_sarif(findings))
    else:
        for finding in findings:
            print(shown(finding))
        context.say(_summary(findings, checked))


def _summary(findings: Sequence[Finding], checked: Checked) -> str:
    counts = Counter(finding.severity for finding in findings)
    told = ", ".join(
        counted(counts[severity], word)
        for severity, word in (
            (Severity.ERROR, "error"),
            (Severity.WARNING, "warning"),
            (Severity.INFO, "remark"),
        )
        if counts[severity]
    )
    looked = [counted(checked.models, "model")] if checked.models else []
    looked += [counted(checked.pipelines, "pipeline")] if checked.pipelines else []
    return f"{told or 'nothing wrong'} in {' and '.join(looked) or 'the text'}"


def _fails(findings: Iterable[Finding], *, strict: bool) -> bool:
    bad = {Severity.ERROR, Severity.WARNING} if strict else {Severity.ERROR}
    return any(finding.severity in bad for finding in findings)
