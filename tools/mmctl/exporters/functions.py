"""Functions that people write beside their models: found, loaded, and blamed at their own line."""

from __future__ import annotations

import functools
import importlib.util
import inspect
import random
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from mmctl.diagnostics import nearest
from mmctl.errors import InputError
from mmctl.exporters.samples import SEED
from mmctl.files import sha256_file


def load_function(file: Path, name: str) -> Callable[..., Any]:
    """The function `name` of a Python file, which may import its neighbours.

    Raises InputError, with the file's own line when it fails.
    """
    try:
        module = _loaded(file, sha256_file(file))
    except Exception as error:  # the user's code may raise anything
        raise failed_in(file, error) from error
    function = getattr(module, name, None)
    if not callable(function):
        known = [key for key, value in vars(module).items() if callable(value)]
        raise InputError(f"{file.name} has no function `{name}`", hint=nearest(name, known))
    return function  # type: ignore[no-any-return]


@functools.cache
def _loaded(file: Path, _content: str) -> Any:
    """A module is run once for each of its contents."""
    sys.dont_write_bytecode = True
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return module


def call(function: Callable[..., Any], packages: Path) -> Any:
    """One that takes a parameter is given `packages`, the folder of the fetched model packages."""
    return function(packages) if inspect.signature(function).parameters else function()


def seed() -> None:
    """Before a function of the user's is called: equal files give equal results."""
    random.seed(SEED)
    np.random.seed(SEED)
    if torch := sys.modules.get("torch"):
        torch.manual_seed(SEED)


def failed_in(file: Path, error: Exception) -> InputError:
    return InputError(f"{_place_in(file, error)}: {type(error).__name__}: {error}")


def _place_in(file: Path, error: Exception) -> str:
    """The line of the user's file that was running, or that does not parse."""
    if isinstance(error, SyntaxError):
        return f"{file.name}:{error.lineno}"
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(file)]
    return f"{file.name}:{lines[-1]}" if lines else file.name
