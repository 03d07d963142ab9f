"""Small repositories for the tests of the checker's rules, written as texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from file_trees import Files, write

from mmctl.diagnostics import Finding
from mmctl.lint.checker import check_repository
from mmctl.lint.repository import Repository, Target, read_repository
from mmctl.lint.rules import Check


def repository(
    folder: Path, files: Files, *, target: Target | None = None, whole: bool = True
) -> Repository:
    """The files as a repository; paths in findings begin at it."""
    read, _ = read_repository(write(folder, files), ".", target or Target())
    return replace(read, whole=whole)


def found(
    folder: Path,
    files: Files,
    checks: Sequence[Check],
    *,
    target: Target | None = None,
    whole: bool = True,
) -> tuple[Finding, ...]:
    """What the rules find, in the order of the places."""
    return check_repository(repository(folder, files, target=target, whole=whole), checks=checks)


def found_in(
    folder: Path,
    config: str,
    checks: Sequence[Check],
    files: Files | None = None,
    *,
    target: Target | None = None,
) -> list[str]:
    """What the rules find in the one model `m`, as `lines`; without `files` it has a model.py."""
    around = {"m/1/model.py": ""} if files is None else files
    return lines(found(folder, {"m/config.pbtxt": config, **around}, checks, target=target))


def lines(findings: Sequence[Finding]) -> list[str]:
    """`severity path:line CODE message`, one a finding."""
    return [f"{f.severity} {f.path}:{f.line} {f.code} {f.message}" for f in findings]


def model(
    inputs: str, outputs: str, *, batch: int = 0, more: str = "", backend: str = "python"
) -> str:
    """A config.pbtxt. Tensors are `name:FP32[4]`, then `=[2,2]` where reshaped, then `?`
    where they may be left out.
    """
    return (
        f'backend: "{backend}"\nmax_batch_size: {batch}\n'
        f"{tensors('input', inputs)}{tensors('output', outputs)}{more}"
    )


def ensemble(inputs: str, outputs: str, *steps: str, batch: int = 0, more: str = "") -> str:
    """A config.pbtxt. Steps are `model x=a y=b -> z=c`: what the model calls a tensor, and its
    name in the ensemble; `model@7` wants version 7, `model@` none.
    """
    shown = "\n".join(map(_step, steps))
    return (
        f'platform: "ensemble"\nmax_batch_size: {batch}\n'
        f"{tensors('input', inputs)}{tensors('output', outputs)}{more}"
        f"ensemble_scheduling {{ {shown} }}\n"
    )


def tensors(section: str, texts: str) -> str:
    return "".join(f"{_tensor(section, text)}\n" for text in texts.split())


def _tensor(section: str, text: str) -> str:
    text, optional = text.removesuffix("?"), text.endswith("?")
    text, _, reshape = text.partition("=")
    name, _, kind = text.partition(":")
    word, _, dims = kind.partition("[")
    more = f" reshape {{ shape: {reshape} }}" if reshape else ""
    more += " optional: true" if optional else ""
    return f'{section} {{ name: "{name}" data_type: TYPE_{word} dims: [{dims}{more} }}'


def _step(text: str) -> str:
    call, _, outputs = text.partition("->")
    name, *inputs = call.split()
    name, at, version = name.partition("@")
    wanted = f" model_version: {version or -1}" if version or not at else ""
    maps = [("input_map", pair) for pair in inputs] + [("output_map", p) for p in outputs.split()]
    entries = " ".join(
        f'{field} {{ key: "{pair.split("=")[0]}" value: "{pair.split("=")[1]}" }}'
        for field, pair in maps
    )
    return f'step {{ model_name: "{name}"{wanted} {entries} }}'
