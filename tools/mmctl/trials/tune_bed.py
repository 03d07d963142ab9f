"""A private copy of what is served, in which models can be set, asked and measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from mmctl.client.samples import Sample
from mmctl.client.transport import GrpcTransport
from mmctl.errors import WorldError
from mmctl.files import read_text, write_text
from mmctl.loadtest.bench import (
    INTERRUPTED,
    Asked,
    Plan,
    Progress,
    Server,
    asked_of,
    measure,
)
from mmctl.loadtest.result import Measured
from mmctl.loadtest.schedule import ClosedLoop, OpenLoop
from mmctl.loadtest.search import Settings
from mmctl.loadtest.simulate import Setting
from mmctl.pipeline.graph import StepCall
from mmctl.server.process import EmbeddedTriton
from mmctl.serving.session import Prepared, private_triton
from mmctl.trials.tune_files import Place
from mmctl.trials.tune_nodes import Pipelines
from mmctl.triton.config import ModelConfig
from mmctl.triton.pbtxt import parse_config, with_setting
from mmctl.triton.repository import CONFIG, is_foreign, is_generated
from mmctl.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Tunable:
    """A model that can be set. `least` is the smallest batch that its callers need."""

    name: str
    was: Setting
    place: Place
    batched: bool
    least: int


class Bed:
    """`prepared.tree` is of this process alone."""

    def __init__(
        self,
        workspace: Workspace,
        prepared: Prepared,
        name: str,
        samples: Sequence[Sample],
        progress: Progress,
    ) -> None:
        self.name = name
        self._workspace, self._prepared = workspace, prepared
        self._samples, self._progress = samples, progress
        self._paths = {m: prepared.tree.root / m / CONFIG for m in prepared.tree.models}
        self._texts = {model: read_text(path) for model, path in self._paths.items()}
        self.configs: dict[str, ModelConfig] = {
            model: parse_config(text, where=str(self._paths[model]))
            for model, text in self._texts.items()
        }
        self.pipelines = Pipelines(
            {planned.source.name: planned.compiled for planned in prepared.built.pipelines},
            {model: config.steps for model, config in self.configs.items() if config.steps},
        )

    @property
    def settings(self) -> dict[str, Setting]:
        """As the workspace has them."""
        return {model: setting_of(config) for model, config in self.configs.items()}

    @property
    def tunables(self) -> tuple[Tunable, ...]:
        """Models with a model.yaml, and steps that are models of their own."""
        places = dict(self._places())
        least = dict.fromkeys(places, max(sample.batch for sample in self._samples))
        for model, size in self._declared():
            least[model] = max(least.get(model, 1), size)
        return tuple(
            Tunable(
                model,
                setting_of(self.configs[model]),
                place,
                batched=self.configs[model].max_batch_size > 0,
                least=least[model],
            )
            for model, place in places.items()
            if model in self.configs
        )

    def _places(self) -> Iterator[tuple[str, Place]]:
        workspace = self._workspace
        for model in self.configs:
            folder = workspace.models / model
            if not is_generated(folder) and not is_foreign(folder):
                yield model, Place(workspace.shown(folder / "model.yaml"))
        for planned in self._prepared.built.pipelines:
            file = workspace.pipelines / planned.source.name / "pipeline.yaml"
            for node in planned.compiled.graph.nodes:
                if isinstance(node.runs, StepCall) and planned.compiled.form != "fused":
                    place = Place(workspace.shown(file), node.name)
                    yield f"{planned.source.name}__{node.name}", place

    def _declared(self) -> Iterator[tuple[str, int]]:
        """Models, and the `max_batch:` that a pipeline which calls them says it takes."""
        for planned in self._prepared.built.pipelines:
            data = planned.source.document.data
            said = data.get("max_batch") if isinstance(data, dict) else None
            for node in planned.compiled.graph.nodes:
                if isinstance(said, str) and node.policy.foreach is None:
                    own = f"{planned.source.name}__{node.name}"
                    yield getattr(node.runs, "model", own), int(said)

    @contextmanager
    def serving(self, settings: Settings) -> Iterator[tuple[EmbeddedTriton, Asked]]:
        """A server with these settings, and what it is asked."""
        self._set(settings)
        with private_triton(self._workspace, self._prepared, lambda _: None) as server:
            with GrpcTransport(server.grpc, server.headers) as transport:
                signature = transport.signature(self.name)
            yield server, asked_of(self.name, self._samples, signature)

    def _set(self, settings: Settings) -> None:
        """Callees come first: an ensemble takes no larger batches than what it calls."""
        sizes: dict[str, int] = {}
        for model, text in self._texts.items():
            config, where = self.configs[model], str(self._paths[model])
            sizes[model] = config.max_batch_size
            setting = settings.get(model)
            made = text
            if config.steps:
                called = [sizes[step.model] for step in config.steps if sizes.get(step.model)]
                sizes[model] = min([config.max_batch_size, *called])
                made = with_setting(text, where=where, max_batch=sizes[model])
            elif setting is not None and setting != setting_of(config):
                sizes[model] = setting.max_batch if config.max_batch_size else 0
                made = with_setting(
                    text,
                    where=where,
                    max_batch=sizes[model],
                    instances=setting.instances,
                    delay_us=round(setting.delay * 1e6),
                )
            write_text(self._paths[model], made)

    def load(
        self, server: EmbeddedTriton, asked: Asked, profile: OpenLoop | ClosedLoop, seed: int = 1
    ) -> Measured:
        """Raises WorldError when the server dies of it."""
        where = Server(server.grpc, server.headers, None, server.info.pid)
        measured = measure(where, asked, Plan(profile, seed=seed), {}, self._progress)
        if measured.partial == INTERRUPTED:
            raise KeyboardInterrupt
        if measured.partial is not None:
            raise WorldError(f"a trial was cut short: {measured.partial}")
        return measured


def setting_of(config: ModelConfig) -> Setting:
    """Without a batch axis every request is a batch of its own."""
    return Setting(
        max_batch=config.max_batch_size or 1,
        instances=sum(group.count for group in config.instances) or 1,
        delay=config.batching.max_delay_us / 1e6 if config.batching else 0.0,
    )
