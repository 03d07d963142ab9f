"""What to say of a Triton that has died. Pure."""

from __future__ import annotations

import signal
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

from mmctl.errors import WorldError
from mmctl.server.log import find_loading, last_words


def crash(
    code: int, log: str, path: Path, *, warmed: Collection[str] = (), stubs: Sequence[str] = ()
) -> WorldError:
    """Why Triton ended, with the model at fault where its log or a dead stub tells.

    `warmed` are the models with a warm-up, which can kill Triton when it fails: of those that
    were loading, they are at fault first. `stubs` are the models whose processes have died
    before, the last one last.
    """
    loading = find_loading(log).unfinished
    at_fault = [name for name in loading if name in warmed] or loading
    what = "Triton ended" if code < 128 else f"Triton died of {_signal_name(code - 128)}"
    if at_fault:
        what += f" while it loaded {quoted(at_fault)}"
    elif stubs:
        what += f" after a process of `{stubs[-1]}` had died"
    said = "".join(f"\n  {line}" for line in last_words(log))
    hint = f"read the whole log in {path}"
    if at_fault:
        hint = f"look at the warm-up and the start of {quoted(at_fault)}; {hint}"
    return WorldError(f"{what} (exit code {code}){said}", hint=hint)


def quoted(models: Sequence[str]) -> str:
    return ", ".join(f"`{model}`" for model in models)


def _signal_name(number: int) -> str:
    with suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"
