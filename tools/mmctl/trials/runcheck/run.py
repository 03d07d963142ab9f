"""`mmctl check --run`: a repository that mmctl never wrote, loaded and asked on a private server.

Models are loaded one by one, called ones first, so that a crash names the model. Whatever a model
does to the server is a finding: then the server starts again without it, and the rest goes on.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from mmctl.client.samples import Sample, read_sample
from mmctl.diagnostics import Finding, Position, Severity, in_order, nearest
from mmctl.errors import InputError
from mmctl.lint.repository import Model as Folder
from mmctl.lint.repository import Repository, Target, read_repository, steps_of
from mmctl.lint.run import DEATH, LOAD, MATES, NOT_RUN, SILENCE, WARM_UP
from mmctl.server.install import ensure_bare_runtime
from mmctl.server.runtime import Runtime, precompile
from mmctl.server.wheel import stage_backends
from mmctl.serving.session import private_folder
from mmctl.trials.runcheck.asker import Asker
from mmctl.trials.runcheck.exam import examine
from mmctl.trials.runcheck.folder import (
    copy_model,
    drop_warm_up,
    read_code,
    read_warm_up,
    scales_by_batch,
)
from mmctl.trials.runcheck.model import Model, warm_ups_of, with_steps
from mmctl.trials.runcheck.plan import Plan, plan_run
from mmctl.trials.runcheck.questions import Asking, Fate, Question, Reply
from mmctl.trials.runcheck.reasons import short
from mmctl.trials.runcheck.remarks import Place, Remark
from mmctl.trials.runcheck.rows import own_values
from mmctl.trials.runcheck.stage import Scene, Stage
from mmctl.triton.repository import CONFIG

Say = Callable[[str], None]

DEADLINE_S = 10.0
LOAD_S = 300.0
PROGRESS_S = 5.0


def run_check(
    repository: Path,
    *,
    say: Say,
    state: Path,
    models: Sequence[str] = (),
    inputs: Mapping[str, Path] | None = None,
    shown: Callable[[Path], str] = str,
    runtime: Runtime | None = None,
    deadline_s: float = DEADLINE_S,
    load_s: float = LOAD_S,
) -> list[Finding]:
    """What a run of `repository` shows and Triton does not say; in order of place.

    `models` (all by default) are asked, what they call is loaded too. `inputs` are sample files by
    model. `state` is where the private copy and the server's own files go, and the runtime is
    installed unless `runtime` is given. Raises InputError for unknown names and unusable samples,
    WorldError when Triton does not start.
    """
    found, _ = read_repository(repository, shown(repository), Target())
    known = [name for name, folder in found.models.items() if folder.config or folder.versions]
    _refuse_unknown(repository, [*models, *(inputs or {})], known)
    samples = {name: read_sample(path) for name, path in (inputs or {}).items()}
    runtime = runtime or ensure_bare_runtime(state, say)
    backends = {folder.name for folder in stage_backends(runtime).iterdir()}
    code = {name: read_code(found.models[name]) for name in known}
    plan = plan_run(found, code, backends, models)
    run = _Run(found, plan, samples, say)
    if plan.order:
        with private_folder(state / "checked") as root:
            run.copy(root)
            precompile(runtime, [root])
            where = shown(repository)
            run.all(Scene(runtime, root, where, state, plan.complete, deadline_s, load_s))
    findings = [_finding(found.models[remark.model], remark) for remark in run.remarks]
    return list(in_order(findings))


class _Run:
    """What is known of the models so far, over several servers."""

    def __init__(
        self, repository: Repository, plan: Plan, samples: Mapping[str, Sample], say: Say
    ) -> None:
        self.remarks: list[Remark] = []
        self._folders, self._plan, self._samples, self._say = repository.models, plan, samples, say
        self._out: dict[str, Severity] = {}
        """Models that are not loaded any more, and how much that says of those that call them."""
        self._done: set[str] = set()
        self._cold: dict[str, Reply] = {}
        """Models that are loaded without their warm-up, because of this failure with it."""
        self._told: set[str] = set()
        """Of these, those that load without it: the warm-up is to blame, and that is said."""
        self._said_s = time.monotonic()
        for name, reason in plan.left_out.items():
            self._leave_out(name, f"not run: {reason}", at=("backend",))

    def copy(self, root: Path) -> None:
        for name in self._plan.order:
            if copy_model(self._folders[name], root):
                message = "run on the CPU: the embedded server has no GPU"
                self._add(name, NOT_RUN, message, severity=Severity.INFO, at=("instance_group",))

    def all(self, scene: Scene) -> None:
        count = len(self._plan.order)
        models = "1 model" if count == 1 else f"{count} models"
        self._say(f"loading {models} on the embedded Triton, one after the other")
        if scene.complete:
            self._say("  some configs are incomplete: Triton completes them, and loads slowly")
        while self._goes_on(scene):
            self._say("  starting the server again")

    def _goes_on(self, scene: Scene) -> bool:
        """Load and ask what is left; True when the server was lost on the way."""
        with Stage(scene) as stage:
            for number, name in enumerate(self._plan.order):
                self._tell(f"{number} of {len(self._plan.order)} loaded")
                if self._runs(name) and not self._load(stage, scene, name):
                    return True
            loaded = {m.name: m for name in self._plan.order for m in stage.models(name)}
            for name in self._plan.asked:
                if name in self._done or not self._runs(name):
                    continue
                self._tell(f"{len(self._done)} of {len(self._plan.asked)} asked")
                self._done.add(name)
                for model in stage.models(name):
                    if not self._ask(stage, with_steps(model, loaded)):
                        self._out[name] = Severity.INFO
                        return True
        return False

    def _tell(self, progress: str) -> None:
        if time.monotonic() - self._said_s >= PROGRESS_S:
            self._said_s = time.monotonic()
            self._say(f"  {progress}")

    def _runs(self, name: str) -> bool:
        """Whether a model, and all that it calls as an ensemble, is still loaded."""
        if name in self._out:
            return False
        for step in steps_of(self._folders[name]):
            if (severity := self._out.get(step)) is Severity.ERROR:
                self._out[name] = severity
                self._add(name, LOAD, f"does not load, because its step `{step}` does not")
                return False
            if severity is not None:
                self._leave_out(name, f"not asked: its step `{step}` does not run any more")
                return False
        return True

    def _load(self, stage: Stage, scene: Scene, name: str) -> bool:
        """False when the server is lost."""
        reply = stage.load(name)
        if not reply.ok and self._warms_up(name):
            self._cold[name] = reply
            drop_warm_up(scene.root, name)
            if reply.spoils:
                return False
            reply = stage.load(name)
        if not reply.ok:
            self._add_unloaded(name, reply)
        elif (warm := self._cold.get(name)) and name not in self._told:
            self._told.add(name)
            what = "kills the server" if warm.fate is Fate.SERVER_DIED else "fails"
            message = f"its warm-up {what}: {short(warm.text)}"
            hint = "give the warm-up values that the model takes"
            self._add(name, WARM_UP, message, hint, at=("model_warmup",))
        return not reply.spoils

    def _warms_up(self, name: str) -> bool:
        folder = self._folders[name]
        warm_ups = folder.message.model_warmup
        return bool(warm_ups) and name not in self._cold and not folder.is_ensemble

    def _add_unloaded(self, name: str, reply: Reply) -> None:
        self._out[name] = Severity.ERROR
        match reply.fate:
            case Fate.SERVER_DIED:
                self._add(name, DEATH, f"the server dies of it: {reply.text}", reply.hint)
            case Fate.LATE:
                self._add(name, SILENCE, reply.text, "look at what its `initialize` waits for")
            case _:
                place, text = _split_place(reply.text)
                self._add(name, LOAD, f"does not load: {text}", at=place)

    def _ask(self, stage: Stage, model: Model) -> bool:
        """False when the server is lost."""
        folder = self._folders[model.name]
        called = model.inner | self._plan.calls[model.name]
        model = replace(model, warm_ups=warm_ups_of(folder.message), inner=called)
        earlier: dict[str, set[str]] = {}
        for remark in self.remarks:
            earlier.setdefault(remark.model, set()).add(remark.code)
        asker = Asker(model, earlier, self._out)
        own = list(own_values(model, self._samples.get(model.name), self._warm_values(model)))
        lost = drive(examine(asker, own), stage.ask)
        self.remarks += [self._weighed(remark) for remark in asker.remarks]
        return not lost

    def _weighed(self, remark: Remark) -> Remark:
        """Dynamic INT8 changes with the batch by its nature, which is no mistake in the model."""
        if remark.code != MATES or not scales_by_batch(self._folders[remark.model]):
            return remark
        hint = "expect it of dynamic INT8, whose scales are those of the whole batch; static INT8 "
        hint += "keeps rows apart"
        return replace(remark, severity=Severity.WARNING, hint=hint)

    def _warm_values(self, model: Model) -> dict[str, dict[str, bytes]]:
        """Warm-ups to ask with: those with files, and what failed without a word."""
        name = model.name
        failed = self._cold.get(name)
        silent = failed is not None and failed.spoils
        if failed is not None and not silent:
            return {}  # it has said why
        return {
            warm_up.name: read_warm_up(self._folders[name], warm_up)
            for warm_up in model.warm_ups
            if warm_up.files or silent
        }

    def _leave_out(self, name: str, message: str, at: Place = ()) -> None:
        self._out[name] = Severity.INFO
        self._add(name, NOT_RUN, message, severity=Severity.INFO, at=at)

    def _add(
        self,
        name: str,
        code: str,
        message: str,
        hint: str | None = None,
        severity: Severity = Severity.ERROR,
        at: Place = (),
    ) -> None:
        self.remarks.append(Remark(name, code, f"`{name}`: {message}", hint, severity, at))


def drive(asking: Asking[None], ask: Callable[[Question], Reply]) -> bool:
    """Ask what the questions are; whether the last one spoilt the server."""
    reply = None
    try:
        question = next(asking)
        while True:
            reply = ask(question)
            question = asking.send(reply)
    except StopIteration:
        return reply is not None and reply.spoils


def _split_place(text: str) -> tuple[Place, str]:
    """Line and column in config.pbtxt, where a reason begins with them, and the rest of it."""
    if match := re.match(rf"\S*{re.escape(CONFIG)}:(\d+):(\d+): (.*)", text):
        return (int(match[1]), int(match[2])), match[3]
    return (), short(text)


def _finding(folder: Folder, remark: Remark) -> Finding:
    position = _position(folder, remark.at)
    return Finding.at(position, remark.code, remark.message, remark.hint, remark.severity)


def _position(folder: Folder, at: Place) -> Position:
    """Tensors are told by name, and stand in the config by number, if they stand there at all."""
    match at:
        case (int(line), int(column)):
            return replace(folder.at(), line=line, column=column)
        case ("input" | "output" as field, str(name)):
            names = [tensor.name for tensor in getattr(folder.message, field)]
            return folder.at(field, names.index(name)) if name in names else folder.at()
        case _:
            return folder.at(*at)


def _refuse_unknown(repository: Path, names: Iterable[str], known: Collection[str]) -> None:
    if not known:
        raise InputError(
            f"{repository}: no model is in it",
            hint="a repository holds one folder a model, with a config.pbtxt",
        )
    for name in names:
        if name not in known:
            raise InputError(f"{repository}: no model `{name}`", hint=nearest(name, known))
