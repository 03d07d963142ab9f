"""Folders and files of a model: R001 to R007 and D001. What Triton looks for, and where.

Measured on Triton 24.10, which waits for ever, or dies, at some of these.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from math import prod
from pathlib import Path

from mmctl.diagnostics import Position, Rule, Severity
from mmctl.lint.remembered import remembered
from mmctl.lint.repository import (
    DEFAULT_FILES,
    SPECIAL_FOLDERS,
    UNREADABLE,
    Model,
    Repository,
    is_version,
    join,
    read_bytes,
)
from mmctl.lint.rules import Check, Mistake

UNREADABLE_RULE = Rule(
    UNREADABLE,
    "file or folder that cannot be read",
    "Triton reads every model folder and its config.pbtxt: they must be there, be plain files and "
    "folders, and be readable for the user that runs it.",
    wrong="-rw------- root config.pbtxt",
    right="-rw-r--r-- root config.pbtxt",
)
"""Found while the repository is read."""

# ---------------------------------------------------------------- R002


def _find_no_version(model: Model, _repository: Repository) -> Iterator[Mistake]:
    phantoms = _phantoms(model)
    for name, version in phantoms.items():
        yield _phantom(model, name, version)
    if model.versions or any(version < 2**63 for version in phantoms.values()):
        return
    if model.findings or (model.config is None and not model.backend):
        return  # it cannot be read, or is no model at all, as other rules say
    found = _other_folders(model)
    shown = f" (found: {', '.join(f'`{name}`' for name in found)})" if found else ""
    yield Mistake(
        Position(model.shown), f"`{model.name}` has no version folder{shown}", _hint(model, found)
    )


def _other_folders(model: Model) -> list[str]:
    return [
        name
        for name, is_folder in sorted(model.entries.items())
        if is_folder and name not in SPECIAL_FOLDERS and not name.startswith((".", "__"))
    ]


def _hint(model: Model, found: list[str]) -> str:
    for name in found:
        if match := re.fullmatch(r"[A-Za-z]*[-_.]?0*([1-9][0-9]*)", name):
            return f"rename `{name}` to `{match[1]}`: versions are plain numbers"
    if model.is_ensemble:
        return "make an empty folder `1` with a file in it, as `.gitkeep`: git drops empty folders"
    lost = DEFAULT_FILES.get(model.backend, "")
    if lost in model.entries:
        return f"move `{lost}` into a folder `1`"
    return "put the model's files into a folder `1`"


def _phantoms(model: Model) -> dict[str, int]:
    """Folders that are no version and that Triton takes for one, as it reads no further than the
    digits: those that it would load, or that kill it.
    """
    numbers = {
        name: int(match[1])
        for name, is_folder in sorted(model.entries.items())
        if is_folder and not is_version(name) and (match := _NUMBER.match(name))
    }
    if not numbers:
        return {}
    seen = {number: frozenset[str]() for number in numbers.values() if number < 2**63}
    served = replace(model, versions={**seen, **model.versions}).served_versions
    return {
        name: number
        for name, number in numbers.items()
        if number >= 2**63 or (number in served and number not in model.versions)
    }


_NUMBER = re.compile(r"\s*([+-]?[1-9][0-9]*)")


def _phantom(model: Model, name: str, version: int) -> Mistake:
    if version >= 2**63:
        message = f"the folder `{name}` is a number too large for a version: Triton dies of it"
        return Mistake(Position(join(model.shown, name)), message, "rename or remove it")
    return Mistake(
        Position(join(model.shown, name)),
        f"Triton takes the folder `{name}` for version {version}, and there is no folder "
        f"`{version}`",
        f"rename it to `{abs(version)}`, or give it a name that begins with a letter",
    )


NO_VERSION = Check(
    Rule(
        "R002",
        "no version folder",
        "Every model, an ensemble too, has a folder for each version, called by its number: `1`, "
        "not `v1` or `01`. That of an ensemble is empty, and git drops empty folders: put a file "
        "into it. `1_old` counts as version 1.",
        wrong="flow/config.pbtxt",
        right="flow/config.pbtxt\nflow/1/.gitkeep",
    ),
    _find_no_version,
)

# ---------------------------------------------------------------- R003


def _find_no_served_version(model: Model, _repository: Repository) -> Iterator[Mistake]:
    policy = model.message.version_policy
    if not model.versions:
        return
    folders = ", ".join(map(str, sorted(model.versions)))
    if policy.HasField("latest") and policy.latest.num_versions == 0:
        yield Mistake(
            model.at("version_policy"),
            "the version policy serves the latest 0 versions",
            "write `latest { num_versions: 1 }`",
        )
    if not policy.HasField("specific"):
        return
    wanted = list(policy.specific.versions)
    missing = [version for version in wanted if version not in model.versions]
    for number, version in enumerate(wanted):
        if version in missing and len(missing) < len(wanted):
            yield Mistake(
                model.at("version_policy", "specific", "versions", number),
                f"the version policy wants version {version}, and the folders are {folders}",
                None,
                Severity.WARNING,
            )
    if len(missing) == len(wanted):
        shown = ", ".join(map(str, wanted)) or "no version"
        yield Mistake(
            model.at("version_policy"),
            f"no version is available under the version policy: it wants {shown}, and the folders "
            f"are {folders}",
            "name versions that are there",
        )


NO_SERVED_VERSION = Check(
    Rule(
        "R003",
        "version policy without a match",
        "Of the version folders, Triton serves those that `version_policy` names; without a policy "
        "the highest one. A model of which it serves none does not load.",
        wrong="version_policy { specific { versions: [ 3 ] } }  # folders 1 and 2",
        right="version_policy { specific { versions: [ 2 ] } }",
    ),
    _find_no_served_version,
)

# ---------------------------------------------------------------- R004


def _find_wrong_labels(model: Model, _repository: Repository) -> Iterator[Mistake]:
    for number, output in enumerate(model.message.output):
        name = output.label_filename
        if not name:
            continue
        at = model.at("output", number, "label_filename")
        path = Path(f"{model.path}/{name}")
        if not os.path.isfile(path):
            hint = "its path begins at the model's folder"
            yield Mistake(at, f"the label file `{name}` does not exist", hint)
            continue
        if os.path.normpath(f"./{name}").startswith(".."):
            yield Mistake(
                at,
                f"the label file `{name}` lies outside the model's folder: newer Tritons refuse it",
                "copy it into the model's folder",
                Severity.WARNING,
            )
            continue
        dims = list(output.dims)
        if dims and all(dim > 0 for dim in dims):
            yield from _wrong_count(at, path, name, prod(dims), output.name)


def _wrong_count(
    at: Position, path: Path, name: str, values: int, output: str
) -> Iterator[Mistake]:
    try:
        content = read_bytes(path).rstrip()
    except OSError:
        return
    lines = content.count(b"\n") + bool(content)
    if lines != values:
        yield Mistake(
            at,
            f"the number of lines in the label file `{name}` is {lines}, and that of the values of "
            f"output `{output}` {values}",
            "write one line for each value, in their order",
            Severity.WARNING,
        )


WRONG_LABELS = Check(
    Rule(
        "R004",
        "label file missing or of another length",
        "`label_filename` names a text file in the model's folder: line N is the label of value N "
        "of the output. Without the file the model does not load.",
        wrong='output { name: "score" dims: [ 4 ] ... label_filename: "genres.txt" }',
        right="genres.txt beside config.pbtxt, with 4 lines",
    ),
    _find_wrong_labels,
)

# ---------------------------------------------------------------- R005

TENSORFLOW_FILES = {
    "tensorflow_savedmodel": "model.savedmodel",
    "tensorflow_graphdef": "model.graphdef",
}


def _find_no_model_file(model: Model, _repository: Repository) -> Iterator[Mistake]:
    wanted = _model_files(model)
    if not wanted:
        return
    for version in model.served_versions:
        there = model.versions[version]
        if not any(name.split("/")[0] in there for name in wanted):
            yield Mistake(
                Position(join(model.shown, str(version))),
                f"version {version} of `{model.name}` has no model file `{wanted[0]}`, which the "
                f"backend `{model.backend}` opens",
                _file_hint(wanted[0], there),
            )


def _model_files(model: Model) -> list[str]:
    """The names one of which the backend must find, () where it is not known."""
    message = model.message
    if message.runtime or model.is_ensemble:
        return []
    given = message.default_model_filename
    default = DEFAULT_FILES.get(model.backend) or TENSORFLOW_FILES.get(message.platform, "")
    if message.platform == "torch_aoti":
        default = "model.pt2"
    if not default or given.startswith(("/", ".")):
        return []
    return [given or default, *message.cc_model_filenames.values()]


def _file_hint(wanted: str, there: frozenset[str]) -> str:
    kind = os.path.splitext(wanted)[1]
    alike = sorted(name for name in there if os.path.splitext(name)[1] == kind)
    if len(alike) == 1:
        return f'rename `{alike[0]}`, or write `default_model_filename: "{alike[0]}"`'
    return "put it there, or remove the version's folder"


NO_MODEL_FILE = Check(
    Rule(
        "R005",
        "no model file",
        "A backend opens one file in each version folder that is served: model.onnx, model.plan, "
        "model.pt, model.xml, model.py, or `default_model_filename`. A Python model without it "
        "makes Triton 24.10 wait for ever.",
        wrong="scorer/1/scorer.py",
        right="scorer/1/model.py",
    ),
    _find_no_model_file,
)

# ---------------------------------------------------------------- R006


def _find_blank(model: Model, _repository: Repository) -> Iterator[Mistake]:
    if model.backend == "python" and re.search(r"\s", model.name):
        yield Mistake(
            Position(model.shown),
            f"the folder's name `{model.name}` has a blank in it, and a Python model does not "
            "start there",
            f"rename it to `{'_'.join(model.name.split())}`",
        )


BLANK = Check(
    Rule(
        "R006",
        "blank in the name of a Python model",
        "Triton starts the process of a Python model through a shell, with the path of its folder "
        "as it is. With a blank in it, Triton 24.10 waits for ever.",
        wrong="model_repository/my model/1/model.py",
        right="model_repository/my_model/1/model.py",
    ),
    _find_blank,
)

# ---------------------------------------------------------------- R007

ENVIRONMENT = "EXECUTION_ENV_PATH"
HERE = "$$TRITON_MODEL_DIRECTORY/"


def _find_no_environment(model: Model, _repository: Repository) -> Iterator[Mistake]:
    if model.backend != "python" or ENVIRONMENT not in model.message.parameters:
        return
    given = model.message.parameters[ENVIRONMENT].string_value
    # Any other path is one of the server's machine.
    if given.startswith(HERE) and not os.path.exists(f"{model.path}/{given.removeprefix(HERE)}"):
        yield Mistake(
            model.at("parameters", ENVIRONMENT),
            f"the execution environment `{given.removeprefix(HERE)}` is not in the model's folder",
            "put it there: an archive made by conda-pack, or a folder",
        )


NO_ENVIRONMENT = Check(
    Rule(
        "R007",
        "execution environment that is not there",
        "EXECUTION_ENV_PATH names the Python environment of a Python model: an archive made by "
        "conda-pack, or a folder. With $$TRITON_MODEL_DIRECTORY in front it lies in the model's "
        "folder. Without it the model does not load.",
        wrong='string_value: "$$TRITON_MODEL_DIRECTORY/env.tar.gz"  # no such file',
        right='string_value: "$$TRITON_MODEL_DIRECTORY/env.tar.gz"',
    ),
    _find_no_environment,
)

# ---------------------------------------------------------------- D001

REGION_MB = 1
"""What each process of a Python model takes of /dev/shm when it starts."""
DOCKER_MB = 64
"""The size of /dev/shm in a container that is started without `--shm-size`."""


@remembered
def _processes(repository: Repository) -> tuple[int, str]:
    """How many processes the Python models start, those on several GPUs counted for one; and the
    model that starts the most.
    """
    counts = {
        name: sum(max(group.count, 1) for group in model.message.instance_group) or 1
        for name, model in repository.models.items()
        if model.readable and model.backend == "python"
    }
    return sum(counts.values()), max(counts, key=lambda name: counts[name], default="")


def _find_little_memory(model: Model, repository: Repository) -> Iterator[Mistake]:
    total, most = _processes(repository)
    if model.name == most and total * REGION_MB > DOCKER_MB:
        yield Mistake(
            model.at("instance_group"),
            f"the Python models of this repository start {total} processes, which take at least "
            f"{total * REGION_MB} MB of /dev/shm, and Docker gives {DOCKER_MB} MB",
            f"start the container with `--shm-size={2 * total * REGION_MB}m` or more",
        )


LITTLE_MEMORY = Check(
    Rule(
        "D001",
        "shared memory of Python models",
        "Each process of a Python model takes 1 MB of /dev/shm when it starts, and more for the "
        "tensors that it sends. A container has 64 MB unless it is started with `--shm-size`.",
        Severity.WARNING,
        wrong="instance_group { count: 80 }",
        right="docker run --shm-size=1g ...",
    ),
    _find_little_memory,
)

LAYOUT_RULES: tuple[Rule, ...] = (UNREADABLE_RULE,)
LAYOUT_CHECKS: tuple[Check, ...] = (
    NO_VERSION,
    NO_SERVED_VERSION,
    WRONG_LABELS,
    NO_MODEL_FILE,
    BLANK,
    NO_ENVIRONMENT,
    LITTLE_MEMORY,
)
