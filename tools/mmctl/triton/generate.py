"""A signature and what the user said -> the configs worth shipping. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mmctl.errors import InputError
from mmctl.tensors import Signature, TensorSpec
from mmctl.triton.config import (
    Accelerator,
    ConfigTensor,
    DynamicBatching,
    InstanceGroup,
    ModelConfig,
    Optimization,
    QueuePolicy,
    Warmup,
    WarmupInput,
)
from mmctl.triton.options import (
    AcceleratorEntry,
    Batching,
    Instances,
    OptimizationEntry,
    ServingOptions,
    WarmupEntry,
)

GPU_PROFILE = "gpu"


@dataclass(frozen=True, slots=True)
class Backend:
    """Which backend runs a model and whether it can use a GPU."""

    platform: str = ""
    backend: str = ""
    filename: str = ""
    uses_gpu: bool = False


ONNX = Backend(platform="onnxruntime_onnx", filename="model.onnx", uses_gpu=True)
PYTHON = Backend(backend="python", filename="model.py")


def configs_for(
    name: str, signature: Signature, backend: Backend, options: ServingOptions
) -> dict[str, ModelConfig]:
    """Configs by path inside the model's folder: `config.pbtxt`, and `configs/gpu.pbtxt` when the
    user asked for GPU instances. The default one loads on any machine.

    `signature.max_batch` decides batching: 0 makes a model without batch axis. Raises InputError
    when the response cache would answer wrongly (its key leaves out shapes and outputs).
    """
    config = ModelConfig(
        name=name,
        platform=backend.platform,
        backend=backend.backend,
        default_model_filename=backend.filename,
        max_batch_size=signature.max_batch,
        inputs=tuple(config_tensor(spec) for spec in signature.inputs),
        outputs=tuple(
            replace(config_tensor(spec), label_filename=options.labels.get(spec.name, ""))
            for spec in signature.outputs
        ),
        batching=dynamic_batching(options.batching, signature.max_batch),
        instances=(default_instances(options.instances, backend),),
        parameters=options.parameters,
        optimization=_optimization(options.optimization),
        warmups=tuple(
            _warmup(f"warmup_{index}", entry, signature)
            for index, entry in enumerate(options.warmup)
        ),
        response_cache=options.response_cache and _cacheable(name, signature),
    )
    configs = {"config.pbtxt": config}
    if options.instances.gpu is not None:
        group = InstanceGroup(options.instances.gpu, "KIND_GPU", options.instances.devices)
        configs[f"configs/{GPU_PROFILE}.pbtxt"] = replace(config, instances=(group,))
    return configs


def config_tensor(spec: TensorSpec) -> ConfigTensor:
    """Triton has no rank 0: one value per row is written `dims: [1]`."""
    return ConfigTensor(spec.name, spec.type.dtype, spec.type.triton_dims, optional=spec.optional)


def dynamic_batching(batching: Batching, max_batch: int) -> DynamicBatching | None:
    """None without a batch axis and for max_batch 1, where nothing can be joined."""
    queue = None
    if batching.queue_timeout_ms is not None:
        queue = QueuePolicy(timeout_us=round(batching.queue_timeout_ms * 1000))
    if max_batch == 0 or (max_batch == 1 and queue is None):
        return None
    return DynamicBatching(
        max_delay_us=round(batching.max_delay_ms * 1000),
        preferred=tuple(size for size in batching.preferred if size <= max_batch),
        preserve_ordering=batching.preserve_order,
        queue=queue,
    )


def default_instances(instances: Instances, backend: Backend) -> InstanceGroup:
    """The count is always written: Triton's own default differs between backends.

    KIND_AUTO runs on the GPU where there is one; who says `cpu` gets the CPU.
    """
    if instances.cpu is None and backend.uses_gpu:
        return InstanceGroup(1, "KIND_AUTO")
    return InstanceGroup(instances.cpu or 1, "KIND_CPU")


def _optimization(entry: OptimizationEntry | None) -> Optimization | None:
    if entry is None:
        return None
    return Optimization(entry.graph_level, _accelerators(entry.gpu), _accelerators(entry.cpu))


def _accelerators(entries: tuple[AcceleratorEntry, ...]) -> tuple[Accelerator, ...]:
    return tuple(Accelerator(entry.name, entry.parameters) for entry in entries)


def _warmup(name: str, entry: WarmupEntry, signature: Signature) -> Warmup:
    inputs = {}
    for spec in signature.inputs:
        dims = entry.dims.get(spec.name, spec.type.triton_dims)
        if -1 in dims:
            raise InputError(
                f"warm-up: `{spec.name}` has free axes {list(dims)}",
                hint=f"give their sizes: dims: {{{spec.name}: [...]}}",
            )
        inputs[spec.name] = WarmupInput(spec.type.dtype, tuple(dims), entry.data)
    return Warmup(name, entry.batch, inputs, entry.count)


def _cacheable(name: str, signature: Signature) -> bool:
    """Triton's cache key is the model's name, version and raw input bytes, nothing else."""
    if any(-1 in spec.type.triton_dims for spec in signature.inputs):
        raise InputError(
            f"{name}: response_cache would mix up requests: an input has free axes",
            hint="remove `response_cache`; the client's own cache keys on shapes too",
        )
    if len(signature.outputs) > 1:
        raise InputError(
            f"{name}: response_cache would mix up requests: the model has several outputs",
            hint="remove `response_cache`; the client's own cache keys on outputs too",
        )
    return True
