"""Steps of the example pipelines, imported as the step runner imports them."""

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

Load = Callable[[str], ModuleType]


@pytest.fixture(scope="session", autouse=True)
def common(root: Path) -> Iterator[None]:
    """Modules of ensembles/common are found by their bare names."""
    folder = str(root / "ensembles/common")
    sys.path.insert(0, folder)
    yield
    sys.path.remove(folder)


@pytest.fixture(scope="session")
def steps_of(root: Path) -> Load:
    """steps.py of a pipeline, under a module name of its own."""

    def load(pipeline: str) -> ModuleType:
        path = root / f"ensembles/{pipeline}/steps.py"
        spec = importlib.util.spec_from_file_location(f"{pipeline}_steps", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load
