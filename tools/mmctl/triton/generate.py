"""A signature and what the user said -> the configs worth shipping. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mmctl.errors import InputError
from mmctl.tensors import Signature, TensorSpec
from mmctl.triton.acceleration import engine_warmup, gpu_accelerators
from mmctl.triton.config import (
    Accelerator,
    ConfigTensor,
    DynamicBatching,
    InstanceGroup,
    Kind,
    ModelConfig,
    Optimization,
    QueuePolicy,
    Warmup,
    WarmupInput,
)
from mmctl.triton.options import (
    Batching,
    Instances,
    OptimizationEntry,
    ServingOptions,
    WarmupEntry,
)
from mmctl.triton.releases import Release

GPU_PROFILE = "gpu"
NPU_PROFILE = "npu"


@dataclass(frozen=True, slots=True)
class Backend:
    """Which backend runs a model and whether it can use a GPU.

    `image` ends the name of the only container images that have what the model needs; such a model
    batches by itself and is alone in deciding on GPUs.
    """

    platform: str = ""
    backend: str = ""
    filename: str = ""
    uses_gpu: bool = False
    kind: Kind | None = None
    image: str = ""


ONNX = Backend(platform="onnxruntime_onnx", filename="model.onnx", uses_gpu=True)
TENSORRT = Backend(platform="tensorrt_plan", filename="model.plan", uses_gpu=True, kind="KIND_GPU")
PYTHON = Backend(backend="python", filename="model.py")
VLLM = Backend(backend="vllm", kind="KIND_MODEL", image="vllm-python-py3")
TRTLLM = Backend(backend="python", image="trtllm-python-py3")


def configs_for(
    name: str,
    signature: Signature,
    backend: Backend,
    options: ServingOptions,
    *,
    gpu: Backend | None = None,
    releases: Sequence[Release] = (),
) -> dict[str, ModelConfig]:
    """Configs by path inside the model's folder: `config.pbtxt`, and one in `configs/` for GPUs and
    NPUs when the user asked for them. The default one loads on any machine, unless the model is
    for GPUs only.

    `gpu` serves the GPU profile where it differs from the CPU's; `releases` are the Tritons that
    serve it. `signature.max_batch` decides batching: 0 makes a model without batch axis. Raises
    InputError when the response cache would answer wrongly (its key leaves out shapes and outputs),
    and for an accelerator that the GPU profile cannot have.
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
    if backend.kind is None and _wants_gpu(options, gpu):
        made = _gpu_config(config, signature, gpu or backend, options, releases)
        configs[f"configs/{GPU_PROFILE}.pbtxt"] = made
    if options.optimization and options.optimization.npu:
        configs[f"configs/{NPU_PROFILE}.pbtxt"] = _npu_config(config, options.optimization)
    return configs


def _wants_gpu(options: ServingOptions, gpu: Backend | None) -> bool:
    accelerated = options.optimization is not None and options.optimization.gpu
    return bool(options.instances.gpu or accelerated or gpu)


def _gpu_config(
    config: ModelConfig,
    signature: Signature,
    backend: Backend,
    options: ServingOptions,
    releases: Sequence[Release],
) -> ModelConfig:
    """The CPU's config with what a GPU has of its own."""
    accelerators = gpu_accelerators(config.name, signature, backend.filename, options, releases)
    if backend == TENSORRT and accelerators:
        raise InputError(
            f"{config.name}: `optimization: gpu` is for ONNX Runtime, which no `engine` runs in",
            hint="keep one of the two",
        )
    group = InstanceGroup(options.instances.gpu or 1, "KIND_GPU", options.instances.devices)
    made = replace(
        config,
        platform=backend.platform,
        default_model_filename=backend.filename,
        instances=(group,),
    )
    if backend == TENSORRT:
        return replace(made, optimization=None)
    if not accelerators:
        return made
    warmup = engine_warmup(options)
    return replace(
        made,
        optimization=replace(made.optimization or Optimization(), gpu=accelerators),
        warmups=(_warmup("engine", warmup, signature),) if warmup else made.warmups,
    )


def _npu_config(config: ModelConfig, entry: OptimizationEntry) -> ModelConfig:
    """Triton knows CPUs and GPUs: an NPU is an accelerator of instances on the CPU."""
    npu = tuple(Accelerator(one.name, one.parameters) for one in entry.npu)
    group = InstanceGroup(config.instances[0].count, "KIND_CPU")
    made = config.optimization or Optimization()
    return replace(config, instances=(group,), optimization=replace(made, cpu=(*npu, *made.cpu)))


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
    if backend.kind == "KIND_GPU":
        return InstanceGroup(instances.gpu or 1, backend.kind, instances.devices)
    if backend.kind is not None:
        return InstanceGroup(1, backend.kind)
    if instances.cpu is None and backend.uses_gpu:
        return InstanceGroup(1, "KIND_AUTO")
    return InstanceGroup(instances.cpu or 1, "KIND_CPU")


def _optimization(entry: OptimizationEntry | None) -> Optimization | None:
    """What a CPU has; None where the user said nothing for it."""
    if entry is None or (entry.graph_level is None and not entry.cpu):
        return None
    cpu = tuple(Accelerator(one.name, one.parameters) for one in entry.cpu)
    return Optimization(entry.graph_level, cpu=cpu)


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
