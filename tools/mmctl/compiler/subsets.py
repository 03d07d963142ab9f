"""Why every subset of an ensemble's outputs can be asked for.

When a request leaves outputs out, Triton (2.51, and still in 2026) walks back from those and
drops each step whose outputs are all left out or read by dropped steps alone. It gets that wrong
in two cases, and then answers "unexpected deadlock":

- An output that another step reads: it counts as left out although that step needs it. So the
  compiler lets nothing read an output, and makes copies.
- An *input* whose readers are all dropped: it counts as an output of the first step in the config.
  So the first step must be one for which that cannot happen while it is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from mmctl.triton.config import EnsembleStep


def safe_first(
    steps: Sequence[EnsembleStep], inputs: set[str], outputs: Iterable[str]
) -> int | None:
    """Which step may stand first: each input it does not read itself is needed by every output
    that rests on it. None when no step is like that.
    """
    needs = {output: _needs(output, steps) for output in outputs}
    for index, step in enumerate(steps):
        unread = inputs - set(step.inputs.values())
        if all(unread <= tensors for used, tensors in needs.values() if index in used):
            return index
    return None


def _needs(output: str, steps: Sequence[EnsembleStep]) -> tuple[set[int], set[str]]:
    """Steps (by place) and tensors that an output rests on."""
    maker: Mapping[str, int] = {
        tensor: index for index, step in enumerate(steps) for tensor in step.outputs.values()
    }
    used: set[int] = set()
    tensors = {output}
    waiting = [output]
    while waiting:
        index = maker.get(waiting.pop())
        if index is not None and index not in used:
            used.add(index)
            waiting += steps[index].inputs.values()
            tensors |= set(steps[index].inputs.values())
    return used, tensors
