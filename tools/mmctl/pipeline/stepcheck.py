"""Does a function of steps.py fit the node that calls it? Parameters, and the keys it returns."""

from __future__ import annotations

from collections.abc import Collection

from mmctl.diagnostics import nearest
from mmctl.pipeline.findings import (
    STEP_FILE,
    STEP_MISSING,
    STEP_PARAMETERS,
    STEP_RETURNS,
)
from mmctl.pipeline.scope import Scope
from mmctl.pipeline.stepfile import Function, Returned

RUNNER = frozenset(
    {"model.py", "item_lists.py", "model_counters.py", "step_reads.py", "step_tensors.py"}
)
"""Files that lie beside the user's in the folder of a step."""


def check_function(
    node: str, name: str, inputs: Collection[str], outputs: Collection[str], scope: Scope
) -> None:
    """Findings about `step: name` of a node. `inputs` are its keys as written, `x?` among them."""
    place = ("nodes", node, "step")
    files = scope.step_files
    function = files.function(name)
    if not files.has_steps:
        message = f"there is no steps.py beside pipeline.yaml, so no function `{name}`"
        scope.report.add(STEP_MISSING, message, *place)
    elif function is None and files.is_readable:
        message = f"steps.py has no function `{name}`"
        hint = nearest(name, files.function_names())
        scope.report.add(STEP_MISSING, message, *place, hint=hint)
    for taken in sorted(RUNNER & set(files.shipped())):
        message = f"steps.py imports `{taken}`, which is the name of a file of the runner of steps"
        scope.report.add(STEP_FILE, message, *place, hint="rename that file")
    if function is not None:
        _check_parameters(node, function, {key.removesuffix("?"): key for key in inputs}, scope)
        _check_returns(node, function, outputs, scope)


def _check_parameters(node: str, function: Function, inputs: dict[str, str], scope: Scope) -> None:
    """An input that is no parameter stands for a parameter without input: it is told once."""
    if function.parameters is None:
        return
    free = set(function.parameters) - set(inputs)
    unknown = [bare for bare in inputs if bare not in function.parameters]
    missing = [parameter for parameter in function.needed if parameter not in inputs]
    for bare in unknown:
        message = f"`{function.name}` has no parameter `{bare}`"
        location = ("nodes", node, "inputs", inputs[bare])
        hint = nearest(bare, free)
        scope.report.add_key(STEP_PARAMETERS, message, *location, hint=hint)
    for parameter in missing if len(missing) > len(unknown) else ():
        message = f"`{function.name}` needs `{parameter}`, which `{node}` has no input for"
        place = ("nodes", node, *(("inputs",) if inputs else ()))
        hint = f"add it: inputs: {{{parameter}: ...}}"
        scope.report.add_key(STEP_PARAMETERS, message, *place, hint=hint)


def _check_returns(node: str, function: Function, outputs: Collection[str], scope: Scope) -> None:
    if not outputs:
        return
    if function.silent:
        message = f"`{function.name}` returns nothing"
        keys = ", ".join(f"'{key}': ..." for key in outputs)
        hint = f"end it with: return {{{keys}}}"
        scope.report.add_at(function.position, STEP_RETURNS, message, hint)
    for returned in function.returned:
        _check_keys(node, returned, outputs, scope)


def _check_keys(node: str, returned: Returned, outputs: Collection[str], scope: Scope) -> None:
    """A key that is not declared stands for one that is not returned: it is told once."""
    missing = [key for key in outputs if key not in returned.keys]
    extra = [key for key in returned.keys if key not in outputs]
    for key in missing:
        message = f"`{node}.{key}` is declared, but not returned"
        scope.report.add_at(returned.position, STEP_RETURNS, message, nearest(key, extra))
    for key in extra if len(extra) > len(missing) else ():
        message = f"`{key}` is returned, but `{node}` does not declare it"
        scope.report.add_at(returned.position, STEP_RETURNS, message, nearest(key, missing))
