"""Asks one model, checks each answer on its way, and keeps what was shown. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from mmctl.diagnostics import Severity
from mmctl.lint.run import ANSWER, DEATH, NOT_RUN, OUTPUT, SILENCE
from mmctl.trials.runcheck.model import Model
from mmctl.trials.runcheck.outputs import find_faults, missing
from mmctl.trials.runcheck.questions import Asking, Fate, Question, Reply
from mmctl.trials.runcheck.reasons import Reason, dead_process, find_reason, short
from mmctl.trials.runcheck.remarks import Place, Remark
from mmctl.trials.runcheck.rows import Values


class Spoilt(Exception):
    """The server is of no use any more, after `asked`."""

    def __init__(self, reply: Reply, asked: str) -> None:
        super().__init__(reply.text)
        self.reply, self.asked = reply, asked


class Asker:
    """`remarks` grow with the answers; `faulty` are outputs that are not as declared.

    `earlier` are the codes that models were blamed for before, by model; `away` the models that do
    not run here.
    """

    def __init__(
        self,
        model: Model,
        earlier: Mapping[str, Collection[str]],
        away: Collection[str] = (),
    ) -> None:
        self.model = model
        self.remarks: list[Remark] = []
        self.faulty: set[str] = set()
        self.blamed = {code for name in model.inner for code in earlier.get(name, ())}
        """Codes that the models which an ensemble calls have been blamed for."""
        self._faulty_models = {name for name, codes in earlier.items() if OUTPUT in codes}
        self._away = away
        self._sequences = 0

    def ask(
        self,
        values: Values,
        rows: Sequence[int],
        *,
        outputs: tuple[str, ...] = (),
        skip: Sequence[str] = (),
        place: str = "",
    ) -> Asking[Reply]:
        """`skip` names inputs to leave out; `place` is where in a sequence the request stands, it
        is a whole sequence by itself without one. Raises Spoilt.
        """
        model = self.model
        reply = yield Question(
            model.name,
            values.inputs(rows, model.max_batch, skip),
            outputs,
            model.version,
            self._parameters(place),
            model.decoupled,
        )
        if reply.spoils:
            told = [count_of(len(rows))] if model.max_batch else []
            told += [f"free axes of length {values.size}"] if values.size else []
            raise Spoilt(reply, values.label + (f" ({', '.join(told)})" if told else ""))
        if reply.ok:
            self._check_outputs(reply, None if model.decoupled or model.loose else len(rows))
            if not outputs and not skip:
                self._check_missing(reply)
        return reply

    def add(
        self,
        code: str,
        message: str,
        hint: str | None = None,
        severity: Severity = Severity.ERROR,
        at: Place = (),
    ) -> None:
        model = self.model
        told = f"`{model.name}`" + (f" version {model.version}" if model.version else "")
        self.remarks.append(Remark(model.name, code, f"{told}: {message}", hint, severity, at))

    def add_failure(self, what: str, reply: Reply) -> None:
        """A request that should have worked."""
        if (reason := find_reason(self.model, reply.text)) is not None:
            self.add_reason(what, reason)
        else:
            self.add(ANSWER, f"{what}: {short(reply.text)}", "correct the model, or the values")

    def add_reason(self, what: str, reason: Reason) -> None:
        if reason.model in self._away:
            message = f"not asked to the end: it calls `{reason.model}`, which does not run here"
            self.add(NOT_RUN, message, severity=Severity.INFO)
        else:
            self.add(reason.code, f"{what}: {reason.message}", reason.hint, at=reason.at)

    def add_spoilt(self, spoilt: Spoilt) -> None:
        reply, asked = spoilt.reply, spoilt.asked
        match reply.fate:
            case Fate.LATE:
                hint = "look for an endless loop, a response that is not sent, or a call of itself"
                self.add(SILENCE, f"{reply.text} to {asked}", hint)
            case Fate.PROCESS_DIED:
                dead = dead_process(reply.text) or self.model.name
                whose = "its process" if dead == self.model.name else f"the process of `{dead}`"
                hint = "look for what ends Python: memory, a native library, `os._exit`"
                self.add(DEATH, f"{whose} died of {asked}", hint)
            case _:
                self.add(DEATH, f"the server died of {asked}: {reply.text}", reply.hint)

    def _check_outputs(self, reply: Reply, rows: int | None) -> None:
        for outputs in reply.answers:
            for name, fault in find_faults(self.model, outputs, rows):
                self._add_output(name, fault)

    def _check_missing(self, reply: Reply) -> None:
        for name in missing(self.model, reply.answers):
            writer = self.model.writer(name)
            why = f": `{writer[0].model}` does not return `{writer[1]}`" if writer else ""
            self._add_output(name, f"is declared and is not in the answer{why}")

    def _add_output(self, name: str, fault: str) -> None:
        """Once for each output, and not where the step that writes it is known to be wrong."""
        writer = self.model.writer(name)
        if name not in self.faulty and not (writer and writer[0].model in self._faulty_models):
            hint = "return every declared output in its declared shape and type"
            self.add(OUTPUT, f"output `{name}` {fault}", hint, at=("output", name))
        self.faulty.add(name)

    def _parameters(self, place: str) -> dict[str, str | int | bool]:
        kind = self.model.sequences
        if not kind:
            return {}
        self._sequences += place in ("", "first")
        number = 1000 + self._sequences
        return {
            "sequence_id": str(number) if kind == "text" else number,
            "sequence_start": place in ("", "first"),
            "sequence_end": place in ("", "last"),
        }


def count_of(rows: int) -> str:
    return "1 row" if rows == 1 else f"{rows} rows"
