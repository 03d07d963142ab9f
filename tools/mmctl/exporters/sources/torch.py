"""Source `torch`: a function beside model.yaml that builds a module.

    source: {torch: "source:build", outputs: [embedding]}

`source.py` has `def build()` or `def build(packages)`, where `packages` is the folder that holds
the fetched model packages. It returns the module and example inputs by the names of its
arguments, with a batch of two or more rows that differ:

    return module, {"input_ids": ids, "attention_mask": mask}

A third value names the free axes after the batch, None for a fixed one:

    return module, examples, {"input_ids": ("seq",), "attention_mask": ("seq",)}

With `batching: none` there is no batch axis: examples have none, and names start at axis 0.
torch, numpy and random are seeded before the call, so that equal sources give equal models.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mmctl.errors import InputError
from mmctl.exporters.base import Exported, Function, Place, Say, Source, Task, TensorName
from mmctl.exporters.functions import call, failed_in, load_function, seed
from mmctl.exporters.onnx_file import prove_and_save
from mmctl.exporters.packages import pin_of, require_fetched
from mmctl.exporters.resources import existing_file, own_files
from mmctl.exporters.samples import Example
from mmctl.exporters.tracing import trace
from mmctl.tensors import Array


class TorchSource(Source):
    """`torch` is `module:function`; `outputs` names what the module returns, unless a dict does."""

    libraries = ("onnx", "onnxscript", "torch")

    torch: Function
    outputs: tuple[TensorName, ...] = ()

    def origin(self, place: Place) -> Mapping[str, object]:
        return {
            "function": self.torch,
            "outputs": list(self.outputs),
            "files": own_files(place),
            "package": pin_of(place.workspace, self.pip) if self.pip else None,
        }

    def locate(self, place: Place, say: Say) -> Path:
        if self.pip:
            require_fetched(place.workspace)
        return existing_file(place, f"{self.torch.partition(':')[0]}.py")

    def export(self, task: Task) -> Exported:
        function = self.torch.partition(":")[2]
        built = _build(task.located, function, task.place.workspace.packages)
        module, example = _read_built(built, function, batched=task.batched)
        return prove_and_save(trace(module, example, self.outputs, batched=task.batched), task)


def _build(file: Path, name: str, packages: Path) -> Any:
    """Run the user's function. Raises InputError with its own file and line when it fails."""
    import torch  # noqa: F401  # is seeded when it is there

    seed()
    function = load_function(file, name)
    try:
        return call(function, packages)
    except Exception as error:  # the user's code may raise anything
        raise failed_in(file, error) from error


def _read_built(built: Any, function: str, *, batched: bool) -> tuple[Any, Example]:
    """What the user's function returned, checked."""
    import torch

    if not isinstance(built, tuple) or len(built) not in (2, 3):
        raise InputError(
            f"`{function}` returns {_kind_of(built)}",
            hint="return (module, example inputs) or (module, example inputs, free axes)",
        )
    module, inputs, free = (*built, {}) if len(built) == 2 else built
    if not isinstance(module, torch.nn.Module):
        raise InputError(f"`{function}` returns {_kind_of(module)} where a torch.nn.Module belongs")
    if not isinstance(inputs, Mapping) or not inputs:
        raise InputError(f"example inputs of `{function}` are no dict of tensors by argument name")
    if strange := [name for name, value in inputs.items() if not isinstance(value, torch.Tensor)]:
        raise InputError(f"example input `{strange[0]}` of `{function}` is not a tensor")
    arrays = {str(name): value.detach().cpu().numpy() for name, value in inputs.items()}
    example = Example(arrays, _free_axes(free, arrays, batched=batched))
    if batched:
        _check_rows(example, function)
    return module, example


def _free_axes(
    free: Mapping[str, Any], arrays: Mapping[str, Array], *, batched: bool
) -> dict[str, dict[int, str]]:
    axes = {}
    for name, labels in free.items():
        if name not in arrays:
            raise InputError(f"free axes are named for `{name}`, which is no example input")
        if not isinstance(labels, tuple | list) or len(labels) + batched > arrays[name].ndim:
            raise InputError(
                f"free axes of `{name}` are {labels!r} for an example of shape "
                f"{list(arrays[name].shape)}",
                hint='name the axes after the batch, None for a fixed one: ("seq",)',
            )
        axes[name] = {
            index: str(label)
            for index, label in enumerate(labels, start=int(batched))
            if label is not None
        }
    return axes


def _check_rows(example: Example, function: str) -> None:
    counts = {array.shape[0] if array.ndim else 0 for array in example.arrays.values()}
    if len(counts) != 1 or min(counts) < 2:
        raise InputError(
            f"example inputs of `{function}` have no common batch of 2 or more rows",
            hint="give each a first axis of the same length, or write `batching: none`",
        )
    if not example.rows_differ:
        raise InputError(
            f"rows of the example inputs of `{function}` are all equal, so they cannot show "
            "whether a row changes with its neighbours",
            hint="use torch.randn or real data",
        )


def _kind_of(value: object) -> str:
    length = f" of {len(value)}" if isinstance(value, tuple) else ""
    return f"a {type(value).__name__}{length}"
