"""`mmctl stack`, `image` and `k8s`: files for what stands around Triton. Nothing is started."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mmctl.cli import context
from mmctl.cli.context import Json
from mmctl.cli.render import as_json

if TYPE_CHECKING:
    from mmctl.triton.releases import Release
    from mmctl.workspace import Workspace

Names = Annotated[
    list[str] | None, typer.Argument(metavar="NAME...", help="Models or pipelines; all by default.")
]
Check = Annotated[bool, typer.Option("--check", help="Write nothing; exit 1 when a file is stale.")]
TargetName = Annotated[
    str | None,
    typer.Option(
        "--target", metavar="NAME", help="A target of mmctl.yaml, whose release and GPUs count."
    ),
]


def stack(
    names: Names = None, target: TargetName = None, check: Check = False, json: Json = False
) -> None:
    """Write docker-compose.yml with Triton, Prometheus, Grafana, Jaeger and Redis, and its files.

    Rules and dashboards know the models and pipelines of the workspace. A key for the servers is
    put into .env, which is private.
    """
    from mmctl.stack.files import stack_files, write_private
    from mmctl.stack.inventory import read_inventory, read_requirements

    workspace = context.workspace()
    inventory = read_inventory(workspace, names or [])
    requirements = read_requirements(workspace, names or [])
    texts = stack_files(inventory, _release(workspace, target), requirements)
    _finish(workspace, texts, "stack", check=check, json=json)
    if write_private(workspace):
        context.say("wrote a key to .env: keep that file out of version control")


def image(
    names: Names = None, target: TargetName = None, check: Check = False, json: Json = False
) -> None:
    """Write a Dockerfile that adds what the pipelines' steps import to NVIDIA's Triton."""
    from mmctl.stack.files import image_files
    from mmctl.stack.inventory import read_requirements

    workspace = context.workspace()
    requirements = read_requirements(workspace, names or [])
    texts = image_files(_release(workspace, target), requirements)
    _finish(workspace, texts, "image", check=check, json=json)


def k8s(
    names: Names = None,
    *,
    target: TargetName = None,
    image: Annotated[
        str | None,
        typer.Option(metavar="IMAGE", help="What `mmctl image` describes, where it was pushed."),
    ] = None,
    name: Annotated[str, typer.Option(metavar="NAME", help="Of all that is made.")] = "triton",
    repository: Annotated[
        str, typer.Option(metavar="WHERE", help="`pvc:CLAIM`, or s3://, gs://, as://.")
    ] = "pvc:triton-models",
    least: Annotated[int, typer.Option("--min", metavar="N", help="Pods at least.")] = 2,
    most: Annotated[int, typer.Option("--max", metavar="N", help="Pods at most.")] = 8,
    queue_ms: Annotated[
        float,
        typer.Option(
            metavar="MS", help="How long requests may wait; pods are added at 70 % of it."
        ),
    ] = 50,
    monitoring: Annotated[
        str, typer.Option(metavar="NAMESPACE", help="Where Prometheus is.")
    ] = "monitoring",
    clients: Annotated[
        str,
        typer.Option(metavar="LABEL=VALUE", help="Of other namespaces that may ask over gRPC."),
    ] = "",
    otlp: Annotated[
        str | None, typer.Option(metavar="URL", help="Where traces go, over HTTP.")
    ] = None,
    check: Check = False,
    json: Json = False,
) -> None:
    """Write Kubernetes manifests: deployment, service, autoscaler, disruption, network policy."""
    from mmctl.stack.files import kubernetes_files
    from mmctl.stack.inventory import read_inventory
    from mmctl.stack.kubernetes import Cluster

    workspace = context.workspace()
    inventory = read_inventory(workspace, names or [])
    cluster = Cluster(
        image=image or f"triton-with-steps:{_release(workspace, target)}",
        name=name,
        repository=repository,
        least=least,
        most=most,
        gpus=workspace.target(target).gpus if target else 0,
        queue_ms=queue_ms,
        monitoring=monitoring,
        clients=clients,
        bls_threads=inventory.bls_threads,
        otlp_url=otlp,
    )
    texts = kubernetes_files(cluster, inventory.names)
    _finish(workspace, texts, "k8s", check=check, json=json)


def _finish(
    workspace: Workspace, texts: dict[str, str], command: str, *, check: bool, json: bool
) -> None:
    """Write and say what, or compare and exit."""
    from mmctl.stack.files import find_stale, write_files

    if check:
        stale = find_stale(workspace, texts)
        if json:
            print(as_json({"stale": stale}))
        else:
            print("\n".join(stale) if stale else "all files are up to date")
            if stale:
                context.say(f"\nhint: run `mmctl {command}` and commit what it writes")
        raise typer.Exit(1 if stale else 0)
    written = write_files(workspace, texts)
    if json:
        print(as_json({"files": list(texts), "written": written}))
    else:
        print("\n".join(written) if written else "all files are up to date")


def _release(workspace: Workspace, target: str | None) -> Release:
    from mmctl.triton.releases import parse_release

    return parse_release(workspace.release_of(target) if target else workspace.defaults.release)
