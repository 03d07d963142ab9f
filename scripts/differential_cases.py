"""Generated repositories, right ones and wrong ones, for judging the checker against a server.

A pool of leaf models is loaded once; each case is one model, or an ensemble over the pool, made
right first and then spoiled in up to two places. A seed gives the same case everywhere.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

CODE = "class TritonPythonModel:\n    def execute(self, requests):\n        return []\n"

DTYPES = ("TYPE_FP32", "TYPE_INT64", "TYPE_STRING")
DIMS = ([4], [-1], [1], [2, 3], [-1, 4], [16])


@dataclass(frozen=True)
class Tensor:
    name: str
    dtype: str
    dims: Sequence[int]
    more: str = ""

    def text(self) -> str:
        dims = ", ".join(map(str, self.dims))
        name = f'name: "{self.name}" ' if self.name else ""
        dtype = f"data_type: {self.dtype} " if self.dtype else ""
        return f"{{ {name}{dtype}dims: [ {dims} ] {self.more}}}"


@dataclass(frozen=True)
class Step:
    model: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    version: str = "-1"

    def text(self) -> str:
        parts = [f'model_name: "{self.model}"' if self.model else ""]
        parts += [f"model_version: {self.version}" if self.version else ""]
        for kind, entries in (("input_map", self.inputs), ("output_map", self.outputs)):
            parts += [f'{kind} {{ key: "{k}" value: "{v}" }}' for k, v in entries.items()]
        return "    { " + "\n      ".join(part for part in parts if part) + " }"


@dataclass(frozen=True)
class Config:
    """A config.pbtxt as parts; `more` is text that stands at its end. `files` lie in the model's
    folder, `code` is that of each version; None where the model is none of Python.
    """

    name: str
    max_batch: int | None = 0
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    steps: tuple[Step, ...] = ()
    kind: str = 'backend: "python"'
    more: tuple[str, ...] = ()
    versions: tuple[str, ...] = ("1",)
    files: Mapping[str, bytes] = field(default_factory=dict)
    decoupled: bool = False
    code: str | None = CODE
    absent: bool = False

    def text(self) -> str:
        lines = [f'name: "{self.name}"' if self.name else "", self.kind]
        lines += [f"max_batch_size: {self.max_batch}"] if self.max_batch is not None else []
        for word, tensors in (("input", self.inputs), ("output", self.outputs)):
            if tensors:
                lines.append(f"{word} [ {', '.join(t.text() for t in tensors)} ]")
        if self.steps or "ensemble" in self.kind:
            steps = ",\n".join(step.text() for step in self.steps)
            lines.append(f"ensemble_scheduling {{\n  step [\n{steps}\n  ]\n}}")
        if self.decoupled:
            lines.append("model_transaction_policy { decoupled: true }")
        return "\n".join([*(line for line in lines if line), *self.more]) + "\n"

    def write(self, folder: Path) -> None:
        for version in self.versions:
            (folder / version).mkdir(parents=True)
            if self.code is not None and not self.steps and "ensemble" not in self.kind:
                (folder / version / "model.py").write_text(self.code)
        folder.mkdir(exist_ok=True)
        if not self.absent:
            (folder / "config.pbtxt").write_text(self.text())
        for name, content in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


@dataclass(frozen=True)
class Case:
    """What to load: `name`, and the folders that it comes in. `how` says what was spoiled."""

    name: str
    folders: Mapping[str, Config]
    how: tuple[str, ...]

    def write(self, repository: Path) -> None:
        for folder, config in self.folders.items():
            config.write(repository / folder)

    def remove(self, repository: Path) -> None:
        for folder in self.folders:
            shutil.rmtree(repository / folder)

    def text(self) -> str:
        parts = [f"--- {folder}\n{config.text()}" for folder, config in self.folders.items()]
        return f"case {self.name}, spoiled: {', '.join(self.how) or 'nothing'}\n" + "".join(parts)


# ---------------------------------------------------------------- the pool


def pool() -> dict[str, Config]:
    """Leaf models of some thirty signatures, loaded once for all cases."""
    random = Random(11)
    models = {}
    for number in range(28):
        name = f"p{number:02}"
        optional = number % 7 == 3
        inputs = [_tensor(random, f"x{at}") for at in range(random.choice([1, 1, 2, 3]))]
        if optional:
            inputs.append(_tensor(random, "extra", "optional: true "))
        if number % 9 == 4:
            inputs[0] = replace(inputs[0], dims=[1], more="reshape { shape: [ ] } ")
        batch = random.choice([0, 2, 8, 8])
        if number % 9 == 4:
            batch = 8
        models[name] = Config(
            name,
            batch,
            tuple(inputs),
            tuple(_tensor(random, f"y{at}") for at in range(random.choice([1, 1, 2]))),
            decoupled=number % 8 == 5,
            versions=("1", "2") if number % 5 == 2 else ("1",),
            more=(random.choice(POLICIES),) if number % 5 == 2 else (),
        )
    return models


POLICIES = (
    "",
    "version_policy { all { } }",
    "version_policy { specific { versions: [ 1 ] } }",
    "version_policy { latest { num_versions: 2 } }",
)


def _tensor(random: Random, name: str, more: str = "") -> Tensor:
    return Tensor(name, random.choice(DTYPES), random.choice(DIMS), more)


# ---------------------------------------------------------------- right ensembles


def right_ensemble(random: Random, name: str, models: Mapping[str, Config]) -> Config:
    """One that wires its steps by type; now and then a wildcard meets a number, as people do it."""
    count = random.randint(1, 4)
    inputs: list[Tensor] = []
    made: list[Tensor] = []
    steps = []
    used: set[str] = set()
    for at in range(count):
        model = models[random.choice(list(models))]
        feeds = {}
        for tensor in model.inputs:
            if "optional" in tensor.more and random.random() < 0.6:
                continue
            source = _source(random, tensor, made)
            if source is None:
                source = f"in{len(inputs)}"
                inputs.append(Tensor(source, tensor.dtype, tensor.dims))
            used.add(source)
            feeds[tensor.name] = source
        gives = {tensor.name: f"t{at}_{tensor.name}" for tensor in model.outputs}
        made += [Tensor(gives[t.name], t.dtype, t.dims) for t in model.outputs]
        steps.append(Step(model.name, feeds, gives))
    outputs = [t for t in made if t.name not in used or random.random() < 0.1]
    batches = [models[step.model].max_batch for step in steps]
    batched = [size for size in batches if size]
    batch = min(batched) if batched and random.random() < 0.8 else 0
    return Config(
        name, batch, tuple(inputs), tuple(outputs), tuple(steps), kind='platform: "ensemble"'
    )


def _source(random: Random, tensor: Tensor, made: Sequence[Tensor]) -> str | None:
    """A tensor made before that fits, None for a new input of the ensemble."""
    fits = [
        other.name
        for other in made
        if other.dtype == tensor.dtype
        and len(other.dims) == len(tensor.dims)
        and all(a == b or -1 in (a, b) for a, b in zip(other.dims, tensor.dims, strict=True))
    ]
    return random.choice(fits) if fits and random.random() < 0.8 else None


# ---------------------------------------------------------------- how ensembles are spoiled

Spoil = Callable[[Random, Config], Config]


def _step(random: Random, config: Config, change: Callable[[Step], Step]) -> Config:
    if not config.steps:
        return config
    at = random.randrange(len(config.steps))
    steps = list(config.steps)
    steps[at] = change(steps[at])
    return replace(config, steps=tuple(steps))


def _tensors(
    random: Random, tensors: tuple[Tensor, ...], change: Callable[[Tensor], Tensor]
) -> tuple[Tensor, ...]:
    if not tensors:
        return tensors
    at = random.randrange(len(tensors))
    return (*tensors[:at], change(tensors[at]), *tensors[at + 1 :])


def _one_input(random: Random, config: Config, change: Callable[[Tensor], Tensor]) -> Config:
    return replace(config, inputs=_tensors(random, config.inputs, change))


def _one_output(random: Random, config: Config, change: Callable[[Tensor], Tensor]) -> Config:
    return replace(config, outputs=_tensors(random, config.outputs, change))


def _other_dims(random: Random) -> Callable[[Tensor], Tensor]:
    def change(tensor: Tensor) -> Tensor:
        dims = list(tensor.dims)
        kind = random.randrange(5)
        if kind == 0:
            dims[random.randrange(len(dims))] = -1
        elif kind == 1:
            dims[random.randrange(len(dims))] = 7
        elif kind == 2:
            dims = [1, *dims]
        elif kind == 3:
            dims = [-1, *dims]
        else:
            dims = dims[1:] or [0]
        return replace(tensor, dims=dims)

    return change


def _reshaped(random: Random, *shapes: str) -> Callable[[Tensor], Tensor]:
    shape = random.choice(shapes)
    return lambda tensor: replace(tensor, more=f"reshape {{ shape: [ {shape} ] }} ")


def _renamed(mapping: Mapping[str, str], random: Random) -> dict[str, str]:
    entries = dict(mapping)
    if entries:
        key = random.choice(list(entries))
        entries[key.upper()] = entries.pop(key)
    return entries


def _rewired(mapping: Mapping[str, str], random: Random, to: str) -> dict[str, str]:
    entries = dict(mapping)
    if entries:
        entries[random.choice(list(entries))] = to
    return entries


def _dropped(mapping: Mapping[str, str], random: Random) -> dict[str, str]:
    entries = dict(mapping)
    if entries:
        del entries[random.choice(list(entries))]
    return entries


def _any_tensor(random: Random, config: Config) -> str:
    names = [t.name for t in config.inputs]
    names += [value for step in config.steps for value in step.outputs.values()]
    return random.choice(names) if names else "nobody"


SPOILED_ENSEMBLES: Mapping[str, Spoil] = {
    "input dtype": lambda r, c: _one_input(r, c, lambda t: replace(t, dtype=r.choice(DTYPES))),
    "output dtype": lambda r, c: _one_output(r, c, lambda t: replace(t, dtype=r.choice(DTYPES))),
    "input dims": lambda r, c: _one_input(r, c, _other_dims(r)),
    "output dims": lambda r, c: _one_output(r, c, _other_dims(r)),
    "max_batch_size": lambda r, c: replace(c, max_batch=r.choice([0, 1, 2, 4, 8, 16, -1])),
    "step version": lambda r, c: _step(
        r, c, lambda s: replace(s, version=r.choice(["", "1", "2", "7", "0"]))
    ),
    "input key": lambda r, c: _step(r, c, lambda s: replace(s, inputs=_renamed(s.inputs, r))),
    "output key": lambda r, c: _step(r, c, lambda s: replace(s, outputs=_renamed(s.outputs, r))),
    "input left out": lambda r, c: _step(r, c, lambda s: replace(s, inputs=_dropped(s.inputs, r))),
    "output left out": lambda r, c: _step(
        r, c, lambda s: replace(s, outputs=_dropped(s.outputs, r))
    ),
    "input from elsewhere": lambda r, c: _step(
        r, c, lambda s: replace(s, inputs=_rewired(s.inputs, r, _any_tensor(r, c)))
    ),
    "output to elsewhere": lambda r, c: _step(
        r, c, lambda s: replace(s, outputs=_rewired(s.outputs, r, _any_tensor(r, c)))
    ),
    "input from nowhere": lambda r, c: _step(
        r, c, lambda s: replace(s, inputs=_rewired(s.inputs, r, "nowhere"))
    ),
    "unknown model": lambda r, c: _step(r, c, lambda s: replace(s, model="nobody")),
    "no model": lambda r, c: _step(r, c, lambda s: replace(s, model="")),
    "other model": lambda r, c: _step(r, c, lambda s: replace(s, model=f"p{r.randrange(28):02}")),
    "calls itself": lambda r, c: _step(r, c, lambda s: replace(s, model=c.name)),
    "no steps": lambda _, c: replace(c, steps=()),
    "no input map": lambda r, c: _step(r, c, lambda s: replace(s, inputs={})),
    "no output map": lambda r, c: _step(r, c, lambda s: replace(s, outputs={})),
    "step twice": lambda r, c: replace(c, steps=(*c.steps, r.choice(c.steps))) if c.steps else c,
    "steps turned round": lambda _, c: replace(c, steps=c.steps[::-1]),
    "unused input": lambda r, c: replace(c, inputs=(*c.inputs, _tensor(r, "unused"))),
    "unmade output": lambda r, c: replace(c, outputs=(*c.outputs, _tensor(r, "unmade"))),
    "output forgotten": lambda _, c: replace(c, outputs=c.outputs[1:]),
    "passed through": lambda _, c: replace(c, outputs=(*c.outputs, *c.inputs[:1])),
    "optional input": lambda r, c: _one_input(
        r, c, lambda t: replace(t, more=t.more + "optional: true ")
    ),
    "input reshape": lambda r, c: _one_input(
        r, c, _reshaped(r, "", "4", "1, 4")
    ),
    "output reshape": lambda r, c: _one_output(
        r, c, _reshaped(r, "", "4", "-1")
    ),
    "instance_group": lambda _, c: replace(c, more=(*c.more, "instance_group [ { count: 1 } ]")),
    "optimization": lambda _, c: replace(c, more=(*c.more, "optimization { priority: 1 }")),
    "dynamic_batching": lambda _, c: replace(c, more=(*c.more, "dynamic_batching { }")),
    "backend": lambda r, c: replace(
        c, more=(*c.more, r.choice(['backend: "python"', 'backend: "ensemble"']))
    ),
    "no platform": lambda _, c: replace(c, kind=""),
    "policy": lambda r, c: replace(c, more=(*c.more, r.choice(POLICIES))),
    "no version folder": lambda _, c: replace(c, versions=()),
    "version 3 wanted": lambda _, c: replace(
        c, more=(*c.more, "version_policy { specific { versions: [ 3 ] } }")
    ),
}  # fmt: skip

# ---------------------------------------------------------------- leaf models


def right_leaf(random: Random, name: str) -> Config:
    batch = random.choice([0, 0, 4, 8])
    more = []
    if batch and random.random() < 0.5:
        more.append("dynamic_batching { preferred_batch_size: [ 2, 4 ] }")
    if random.random() < 0.3:
        more.append("instance_group [ { kind: KIND_CPU count: 1 } ]")
    return Config(
        name,
        batch,
        tuple(_tensor(random, f"x{at}") for at in range(random.randint(1, 2))),
        tuple(_tensor(random, f"y{at}") for at in range(random.randint(1, 2))),
        more=tuple(more),
    )


def _more(*texts: str) -> Spoil:
    return lambda r, c: replace(c, more=(*c.more, r.choice(texts)))


SPOILED_LEAVES: Mapping[str, Spoil] = {
    "name": lambda _, c: replace(c, name="other"),
    "no name": lambda _, c: replace(c, name=""),
    "no version folder": lambda _, c: replace(c, versions=()),
    "odd version folder": lambda r, c: replace(c, versions=(r.choice(["01", "v1", "0"]),)),
    "two versions": lambda r, c: replace(
        c, versions=("1", "2"), more=(*c.more, r.choice(POLICIES))
    ),
    "version 3 wanted": _more("version_policy { specific { versions: [ 3 ] } }"),
    "max_batch_size": lambda r, c: replace(c, max_batch=r.choice([-1, 0, 1, 2])),
    "dims": lambda r, c: _one_input(r, c, _other_dims(r)),
    "no dims": lambda r, c: _one_output(r, c, lambda t: replace(t, dims=[])),
    "negative dims": lambda r, c: _one_input(r, c, lambda t: replace(t, dims=[-2])),
    "no data_type": lambda r, c: _one_input(r, c, lambda t: replace(t, dtype="")),
    "tensor without name": lambda r, c: _one_output(r, c, lambda t: replace(t, name="")),
    "reshape": lambda r, c: _one_input(
        r, c, _reshaped(r, "", "4", "2, 2", "-1", "1, -1, 4", "0")
    ),
    "format": lambda r, c: _one_input(r, c, lambda t: replace(t, more="format: FORMAT_NCHW ")),
    "labels": lambda r, c: _one_output(
        r, c, lambda t: replace(t, more='label_filename: "labels.txt" ')
    ),
    "ragged": lambda r, c: _one_input(r, c, lambda t: replace(t, more="allow_ragged_batch: true ")),
    "shape tensor": lambda r, c: _one_input(
        r, c, lambda t: replace(t, more="is_shape_tensor: true ")
    ),
    "optional": lambda r, c: _one_input(r, c, lambda t: replace(t, more="optional: true ")),
    "preferred": _more(
        "dynamic_batching { preferred_batch_size: [ 64 ] }",
        "dynamic_batching { preferred_batch_size: [ 0 ] }",
        "dynamic_batching { preferred_batch_size: [ -1 ] }",
        "dynamic_batching { }",
    ),
    "priorities": _more(
        "dynamic_batching { priority_levels: 3 }",
        "dynamic_batching { priority_levels: 3 default_priority_level: 4 }",
        "dynamic_batching { priority_levels: 3 default_priority_level: 2 }",
        "dynamic_batching { priority_levels: 2 default_priority_level: 1 preserve_ordering: true }",
        "dynamic_batching { preserve_ordering: true "
        "default_queue_policy { timeout_action: DELAY } }",
        "dynamic_batching { priority_levels: 2 default_priority_level: 1 "
        "priority_queue_policy { key: 5 value: { max_queue_size: 2 } } }",
    ),
    "instances": _more(
        "instance_group [ { kind: KIND_GPU } ]",
        "instance_group [ { kind: KIND_GPU gpus: [ 0 ] } ]",
        "instance_group [ { kind: KIND_CPU gpus: [ 0 ] } ]",
        "instance_group [ { kind: KIND_AUTO gpus: [ 3 ] } ]",
        "instance_group [ { kind: KIND_MODEL } ]",
        "instance_group [ { count: -1 } ]",
        'instance_group [ { kind: KIND_CPU profile: [ "0" ] } ]',
        "instance_group [ { count: 1 }, { count: 1 } ]",
    ),
    "cache": _more(
        "response_cache { enable: true }",
        "response_cache { enable: true } model_transaction_policy { decoupled: true }",
    ),
    "sequence": _more(
        "sequence_batching { }",
        'sequence_batching { control_input [ { name: "S" control [ { kind: CONTROL_SEQUENCE_START '
        "fp32_false_true: [ 0, 1 ] } ] } ] }",
        'sequence_batching { control_input [ { name: "S" control [ { kind: CONTROL_SEQUENCE_START '
        "} ] } ] }",
        'sequence_batching { control_input [ { name: "S" control [ '
        "{ kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] }, "
        "{ kind: CONTROL_SEQUENCE_END int32_false_true: [ 0, 1 ] } ] } ] }",
        'sequence_batching { control_input [ { name: "S" control [ '
        "{ kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_STRING } ] } ] }",
        "sequence_batching { oldest { max_candidate_sequences: 4 } }",
        "sequence_batching { direct { } } model_transaction_policy { decoupled: true }",
    ),
    "ensemble in a leaf": _more('ensemble_scheduling { step [ { model_name: "p00" } ] }'),
    "platform": lambda r, c: replace(
        c,
        kind=r.choice(['platform: "python"', 'backend: "pyton"', "", 'platform: "ensemble"']),
    ),
    "two kinds": lambda _, c: replace(
        c, kind='backend: "python"\nplatform: "onnxruntime_onnx"'
    ),
    # A file that is missing makes the load of a Python model hang on 2.51, so it is there.
    "file": lambda _, c: replace(
        c,
        more=(*c.more, 'default_model_filename: "other.py"'),
        files={f"{version}/other.py": CODE.encode() for version in c.versions},
    ),
    "word": lambda r, c: _one_input(r, c, lambda t: replace(t, dtype="TYPE_FLOAT32")),
    "field": _more("nonsense: 1", "max_inflight_requests: 3", "input: [ ]"),
    "field twice": _more("max_batch_size: 2", "dynamic_batching { } dynamic_batching { }"),
    "output twice": lambda _, c: replace(c, outputs=(*c.outputs, c.outputs[0])) if c.outputs else c,
    "input twice": lambda _, c: replace(c, inputs=(*c.inputs, c.inputs[0])) if c.inputs else c,
    "warm-up": _more(
        'model_warmup [ { name: "w" batch_size: 1 inputs { key: "nobody" value: { '
        "data_type: TYPE_FP32 dims: [ 4 ] zero_data: true } } } ]",
    ),
    "batch input": _more(
        "batch_input [ { kind: BATCH_ELEMENT_COUNT target_name: [ \"c\" ] data_type: TYPE_FP32 "
        'source_input: [ "x0" ] } ]',
        "batch_input [ { kind: BATCH_ELEMENT_COUNT target_name: [ \"c\" ] data_type: TYPE_INT64 "
        'source_input: [ "x0" ] } ]',
        "batch_input [ { kind: BATCH_ELEMENT_COUNT target_name: [ \"c\" ] data_type: TYPE_INT32 "
        'source_input: [ "nobody" ] } ]',
    ),
    "batch output": _more(
        "batch_output [ { kind: BATCH_SCATTER_WITH_INPUT_SHAPE target_name: [ \"y0\" ] "
        'source_input: [ "x0" ] } ]',
        "batch_output [ { kind: BATCH_SCATTER_WITH_INPUT_SHAPE target_name: [ \"nobody\" ] "
        'source_input: [ "x0" ] } ]',
    ),
    "metrics": _more("model_metrics { }"),
}  # fmt: skip

# ---------------------------------------------------------------- incomplete configs

COMPLETES = """import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "x", "data_type": "TYPE_FP32", "dims": [4]})
        config.add_output({"name": "y", "data_type": "TYPE_FP32", "dims": [4]})
        config.set_max_batch_size(4)
        return config

    def execute(self, requests):
        return []
"""

NETS: Mapping[str, tuple[Sequence[int | str], Sequence[int | str]]] = {
    "batching": (["n", 4], ["n", 4]),
    "open": (["n", "m"], ["n", "m"]),
    "fixed": ([1, 4], [1, 4]),
    "flat": (["n"], ["n"]),
    "whole": ([4], [4]),
}
"""Shapes of `x` and `y` of small ONNX models; a word is an axis that the model leaves open."""


def net(kind: str) -> bytes:
    from onnx import TensorProto, helper

    given, made = NETS[kind]
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        kind,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, given)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, made)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def incomplete_cases(count: int, seed: int) -> Iterator[Case]:
    """Models whose config leaves something out, half of them called by an ensemble."""
    for number in range(count):
        random = Random(f"incomplete-{seed}-{number}")
        name = f"i{number:03}"
        leaf = _incomplete_leaf(random, name)
        if random.random() < 0.5:
            yield Case(name, {name: leaf}, ("incomplete",))
            continue
        outer = _caller(random, f"c{number:03}", name, leaf)
        # What Python code completes only a server can tell: there, all is as the code says.
        counts = [0] if leaf.code else [0, 0, 1]
        outer, how = _spoiled(random, outer, SPOILED_ENSEMBLES, counts)
        yield Case(outer.name, {name: leaf, outer.name: outer}, ("incomplete", *how))


def _incomplete_leaf(random: Random, name: str) -> Config:
    python = random.random() < 0.3
    dims = [4] if python else random.choice([[4], [4], [-1], [1, 4], [-1, 4]])
    x, y = Tensor("x", "TYPE_FP32", dims), Tensor("y", "TYPE_FP32", dims)
    parts = random.choice(["neither", "neither", "inputs", "outputs", "both"])
    config = Config(
        name if random.random() < 0.7 else "",
        random.choice([None, None, 0, 4]),
        (x,) if parts in ("inputs", "both") else (),
        (y,) if parts in ("outputs", "both") else (),
    )
    if python:
        return replace(config, code=COMPLETES, kind='backend: "python"', max_batch=4)
    return replace(
        config,
        code=None,
        kind=random.choice(['platform: "onnxruntime_onnx"', 'backend: "onnxruntime"', ""]),
        files={"1/model.onnx": net(random.choice(list(NETS)))},
        absent=random.random() < 0.3,
    )


def _caller(random: Random, name: str, folder: str, callee: Config) -> Config:
    dims = [4] if callee.code else random.choice([[4], [4], [-1], [-1, 4]])
    return Config(
        name,
        random.choice([1, 4] if callee.code else [0, 1, 4, 4, 8]),
        (Tensor("a", "TYPE_FP32", dims),),
        (Tensor("b", "TYPE_FP32", dims),),
        (Step(folder, {"x": "a"}, {"y": "b"}),),
        kind='platform: "ensemble"',
    )


# ---------------------------------------------------------------- cases


def cases(count: int, seed: int) -> Iterator[Case]:
    """`count` cases, two of three ensembles."""
    models = pool()
    for number in range(count):
        random = Random(f"{seed}-{number}")
        if random.random() < 0.67:
            yield _ensemble_case(random, f"e{number:05}", models)
        else:
            yield _leaf_case(random, f"m{number:05}")


def _ensemble_case(random: Random, name: str, models: Mapping[str, Config]) -> Case:
    config = right_ensemble(random, name, models)
    folders = {}
    if random.random() < 0.15:  # an ensemble that another one calls
        inner = right_ensemble(random, f"{name}_in", models)
        inner, _ = _spoiled(random, inner, SPOILED_ENSEMBLES, [0, 0, 1])
        config = right_ensemble(random, name, {inner.name: inner, "p00": models["p00"]})
        if any(step.model == inner.name for step in config.steps):
            folders[inner.name] = inner
    config, how = _spoiled(random, config, SPOILED_ENSEMBLES, [0, 0, 1, 1, 2])
    return Case(name, {**folders, name: config}, how)


def _leaf_case(random: Random, name: str) -> Case:
    config, how = _spoiled(random, right_leaf(random, name), SPOILED_LEAVES, [0, 1, 1, 1, 2])
    return Case(name, {name: config}, how)


def _spoiled(
    random: Random, config: Config, ways: Mapping[str, Spoil], counts: Sequence[int]
) -> tuple[Config, tuple[str, ...]]:
    how = tuple(random.sample(list(ways), k=random.choice(counts)))
    for way in how:
        config = ways[way](random, config)
    return config, how
