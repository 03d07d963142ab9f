"""How requests are joined and queued: B001 to B008.

Source of the errors: ValidateModelConfig of Triton's core, 24.10; of the remarks: measurements of
that release (`mmctl check --explain CODE` says which).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from mmctl.diagnostics import Rule, Severity
from mmctl.lint.code.python import code_of
from mmctl.lint.ensembles.graph import wiring_of
from mmctl.lint.repository import Model, Repository
from mmctl.lint.rules import Check, Mistake
from mmctl.triton.schema import word_of

OWN_BATCHING = frozenset({"vllm", "tensorrtllm", "fastertransformer"})
"""Backends that join requests themselves."""


def _complete(model: Model) -> bool:
    """Whether nothing is left for the backend to fill in: it may set batching too."""
    code = code_of(model)
    declared = bool(model.message.input) and bool(model.message.output)
    return declared and not (code is not None and code.completes_config)


# ---------------------------------------------------------------- B001


def _find_no_batching(model: Model, _repository: Repository) -> Iterator[Mistake]:
    message = model.message
    if message.max_batch_size < 2 or model.is_ensemble or model.backend in OWN_BATCHING:
        return
    if message.WhichOneof("scheduling_choice") or message.model_transaction_policy.decoupled:
        return
    if _complete(model):
        yield Mistake(
            model.at("max_batch_size"),
            f"`max_batch_size` is {message.max_batch_size}, and requests are never joined: there "
            "is no `dynamic_batching`",
            "add `dynamic_batching { }`, unless callers batch themselves",
        )


NO_BATCHING = Check(
    Rule(
        "B001",
        "batches without a batcher",
        "`max_batch_size` allows requests with several rows; only `dynamic_batching` joins "
        "requests. Of 16 requests at once, 16 executions without it and 2 with it.",
        Severity.INFO,
        wrong="max_batch_size: 8",
        right="max_batch_size: 8\ndynamic_batching { max_queue_delay_microseconds: 5000 }",
    ),
    _find_no_batching,
)

# ---------------------------------------------------------------- B002


def _find_idle_batching(model: Model, _repository: Repository) -> Iterator[Mistake]:
    message = model.message
    batching = message.dynamic_batching
    if not message.HasField("dynamic_batching") or message.max_batch_size not in (0, 1):
        return
    if batching.preferred_batch_size or not _complete(model):
        return
    at = model.at("dynamic_batching")
    if message.max_batch_size == 0:
        yield Mistake(
            at,
            "`dynamic_batching` with `max_batch_size` 0 never joins requests: the model has no "
            "batch axis",
            "set `max_batch_size` where the model has one, or leave `dynamic_batching` out",
        )
    elif not _sets_policy(batching):
        message = "`dynamic_batching` with `max_batch_size` 1 never joins requests"
        yield Mistake(at, message, None, Severity.INFO)


def _sets_policy(batching: Any) -> bool:
    """Whether the block is there for its queue: limits and priorities work without batches."""
    fields = ("default_queue_policy", "priority_levels", "preserve_ordering")
    return any(field.name in fields for field, _ in batching.ListFields())


IDLE_BATCHING = Check(
    Rule(
        "B002",
        "batcher that joins nothing",
        "The dynamic batcher joins requests up to `max_batch_size` rows. With 0 or 1 each request "
        "runs alone; with 1 the block still gives queue limits and priorities.",
        Severity.WARNING,
        wrong="max_batch_size: 0\ndynamic_batching { }",
        right="max_batch_size: 8\ndynamic_batching { }",
    ),
    _find_idle_batching,
)

# ---------------------------------------------------------------- B003


def _find_wrong_sizes(model: Model, _repository: Repository) -> Iterator[Mistake]:
    message = model.message
    yield from _wrong_sizes(
        model, message.dynamic_batching.preferred_batch_size, ("dynamic_batching",)
    )
    oldest = message.sequence_batching.oldest.preferred_batch_size
    yield from _wrong_sizes(model, oldest, ("sequence_batching", "oldest"))


def _wrong_sizes(model: Model, sizes: Sequence[int], place: tuple[str, ...]) -> Iterator[Mistake]:
    limit = model.message.max_batch_size
    for number, size in enumerate(sizes):
        if 0 < size <= limit or limit < 0:
            continue
        at = model.at(*place, "preferred_batch_size", number)
        if size <= 0:
            yield Mistake(at, f"the preferred batch size {size} must be positive")
            continue
        absent = "" if _given(model, "max_batch_size") else ", which is not given"
        yield Mistake(
            at,
            f"the preferred batch size {size} is above `max_batch_size` {limit}{absent}",
            "leave it out, or raise `max_batch_size`",
        )


def _given(model: Model, name: str) -> bool:
    return model.config is not None and any(f.name == name for f in model.config.tree.fields)


WRONG_SIZES = Check(
    Rule(
        "B003",
        "preferred batch size that cannot be",
        "A preferred size is from 1 to `max_batch_size`, which must be in the config: Triton "
        "compares before a backend fills it in. Without any preferred size Triton aims at "
        "`max_batch_size`.",
        wrong="max_batch_size: 8\ndynamic_batching { preferred_batch_size: [ 16 ] }",
        right="max_batch_size: 8\ndynamic_batching { }",
    ),
    _find_wrong_sizes,
)

# ---------------------------------------------------------------- B004


def _find_unequal_shapes(model: Model, _repository: Repository) -> Iterator[Mistake]:
    message = model.message
    if not message.HasField("dynamic_batching") or message.max_batch_size < 2:
        return
    free = [t.name for t in message.input if -1 in t.dims and not t.allow_ragged_batch]
    if free:
        number = [tensor.name for tensor in message.input].index(free[0])
        shown = ", ".join(f"`{name}`" for name in free)
        yield Mistake(
            model.at("input", number, "dims"),
            f"requests join only where their shapes are equal, and {shown} can vary",
            "send equal lengths (pad to a few), or set `allow_ragged_batch: true` where the model "
            "can take it",
        )


UNEQUAL_SHAPES = Check(
    Rule(
        "B004",
        "requests of different shapes never join",
        "The dynamic batcher joins requests whose inputs have equal shapes. Of 16 requests with 16 "
        "lengths, 16 executions. With `allow_ragged_batch` on every input that varies they join, "
        "and the model must take them: a Python model does, an ONNX model only with inputs of "
        "shape [-1].",
        Severity.INFO,
        wrong='input { name: "wav" dims: [ -1 ] ... }\ndynamic_batching { }',
        right='input { name: "wav" dims: [ -1 ] allow_ragged_batch: true ... }\n'
        "dynamic_batching { }",
    ),
    _find_unequal_shapes,
)

# ---------------------------------------------------------------- B005


def _find_small_size(model: Model, _repository: Repository) -> Iterator[Mistake]:
    sizes = list(model.message.dynamic_batching.preferred_batch_size)
    if 1 in sizes and len(set(sizes)) > 1:
        yield Mistake(
            model.at("dynamic_batching", "preferred_batch_size", sizes.index(1)),
            "the preferred batch size 1 ends the waiting for a larger batch",
            "leave `preferred_batch_size` out, and set `max_queue_delay_microseconds`",
        )


SMALL_SIZE = Check(
    Rule(
        "B005",
        "preferred batch size 1",
        "A preferred size that can be had now is taken now. With [ 1, 8 ] 16 requests took 3 to 5 "
        "executions, with a delay alone always 2.",
        Severity.INFO,
        wrong="dynamic_batching { preferred_batch_size: [ 1, 8 ] }",
        right="dynamic_batching { max_queue_delay_microseconds: 5000 }",
    ),
    _find_small_size,
)

# ---------------------------------------------------------------- B006


def _find_wrong_priorities(model: Model, _repository: Repository) -> Iterator[Mistake]:
    batching = model.message.dynamic_batching
    levels = batching.priority_levels
    if levels:
        if not 1 <= batching.default_priority_level <= levels:
            yield Mistake(
                model.at("dynamic_batching", "default_priority_level"),
                f"`default_priority_level` is {batching.default_priority_level}, and must be in "
                f"the range 1 to {levels}",
                "write `default_priority_level: 1`; 1 is the highest",
            )
        for level in batching.priority_queue_policy:
            if not 1 <= level <= levels:
                yield Mistake(
                    model.at("dynamic_batching", "priority_queue_policy", str(level)),
                    f"`priority_queue_policy` has the priority level {level}, and must be in the "
                    f"range 1 to {levels}",
                )
    elif batching.default_priority_level or batching.priority_queue_policy:
        yield Mistake(
            model.at("dynamic_batching"),
            "priorities have no effect: `priority_levels` is not given",
            "write `priority_levels: N`",
            Severity.WARNING,
        )
    if batching.preserve_ordering:
        yield from _find_lost_order(model)


def _find_lost_order(model: Model) -> Iterator[Mistake]:
    batching = model.message.dynamic_batching
    if batching.priority_levels > 1:
        yield Mistake(
            model.at("dynamic_batching", "priority_levels"),
            f"`preserve_ordering` allows only one priority level, and there are "
            f"{batching.priority_levels}",
        )
    for place, policy in _policies(batching):
        if policy.default_timeout_microseconds and word_of(policy, "timeout_action") == "DELAY":
            yield Mistake(
                model.at("dynamic_batching", *place),
                f"`preserve_ordering` does not go with the timeout action DELAY in `{place[0]}`",
                "write `timeout_action: REJECT`",
            )


def _policies(batching: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Each queue policy and where it stands in the block."""
    yield ("default_queue_policy",), batching.default_queue_policy
    for level in sorted(batching.priority_queue_policy):
        policy = batching.priority_queue_policy[level]
        yield ("priority_queue_policy", str(level), "value"), policy


WRONG_PRIORITIES = Check(
    Rule(
        "B006",
        "queue policy that cannot be",
        "Priorities go from 1, the highest, to `priority_levels`; the default level is one of "
        "them, and so is the key of each policy. Answers in the order of the requests allow one "
        "level, and no request that is put off.",
        wrong="dynamic_batching { priority_levels: 3 }",
        right="dynamic_batching { priority_levels: 3 default_priority_level: 2 }",
    ),
    _find_wrong_priorities,
)

# ---------------------------------------------------------------- B007


def _find_idle_override(model: Model, _repository: Repository) -> Iterator[Mistake]:
    for place, policy in _policies(model.message.dynamic_batching):
        if policy.allow_timeout_override and not policy.default_timeout_microseconds:
            yield Mistake(
                model.at("dynamic_batching", *place, "allow_timeout_override"),
                "`allow_timeout_override` has no effect without `default_timeout_microseconds`",
                "set a default: a request can only shorten it",
            )


IDLE_OVERRIDE = Check(
    Rule(
        "B007",
        "timeout that requests cannot set",
        "A request's own timeout counts where `allow_timeout_override` is set and it is shorter "
        "than `default_timeout_microseconds`. Without that default it is silently ignored.",
        Severity.WARNING,
        wrong="default_queue_policy { allow_timeout_override: true }",
        right="default_queue_policy { allow_timeout_override: true\n"
        "  default_timeout_microseconds: 5000000 }",
    ),
    _find_idle_override,
)

# ---------------------------------------------------------------- B008


def _find_hanging_limit(model: Model, repository: Repository) -> Iterator[Mistake]:
    release = repository.target.release
    limit = model.message.dynamic_batching.default_queue_policy.max_queue_size
    if not limit or release is None or release.queue_limit_safe_in_ensembles:
        return
    for ensemble in repository.models.values():
        if ensemble.readable and ensemble.is_ensemble and _branches(ensemble, model.name):
            yield Mistake(
                model.at("dynamic_batching", "default_queue_policy", "max_queue_size"),
                f"`max_queue_size` of a model that the branching ensemble `{ensemble.name}` calls "
                f"makes Triton {release} hang or crash when the queue is full",
                "use `default_timeout_microseconds` with `timeout_action: REJECT`",
            )
            return


def _branches(ensemble: Model, name: str) -> bool:
    """Whether the ensemble calls the model, and calls it twice or has steps side by side."""
    wiring = wiring_of(ensemble)
    calls = sum(step.model == name for step in wiring.steps)
    return calls > 1 or any(
        not set(before.outputs.values()) & set(after.inputs.values())
        for before, after in pairwise(wiring.order)
        if calls
    )


HANGING_LIMIT = Check(
    Rule(
        "B008",
        "queue limit in a branching ensemble",
        "Before Triton 26.02, a request that a full queue refuses inside an ensemble with parallel "
        "branches never ends, or takes the server with it. A queue timeout is safe there.",
        wrong="default_queue_policy { max_queue_size: 16 }",
        right="default_queue_policy { default_timeout_microseconds: 100000 }",
    ),
    _find_hanging_limit,
)

BATCHING_CHECKS: tuple[Check, ...] = (
    NO_BATCHING,
    IDLE_BATCHING,
    WRONG_SIZES,
    UNEQUAL_SHAPES,
    SMALL_SIZE,
    WRONG_PRIORITIES,
    IDLE_OVERRIDE,
    HANGING_LIMIT,
)
