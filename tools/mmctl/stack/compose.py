"""docker-compose.yml: Triton and what stands around it, on loopback ports only. Pure.

The ports inside the containers are those of their makers; outside, a variable can move each one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mmctl.server.composed import SERVICE
from mmctl.server.docker import INSIDE, MODELS, SHM_SIZE
from mmctl.server.flags import EXIT_TIMEOUT_S, Options, triton_flags
from mmctl.server.ports import HOST
from mmctl.stack.inventory import Inventory
from mmctl.stack.yamltext import render_yaml
from mmctl.triton.generate import GPU_PROFILE

IMAGE_FOLDER = "deploy/triton"

IMAGES = {
    "prometheus": "prom/prometheus:v2.55.1",
    "grafana": "grafana/grafana:11.3.0",
    "jaeger": "jaegertracing/jaeger:2.5.0",
    "redis": "valkey/valkey:8.0-alpine",
}
"""Pinned by hand. Triton's own release is in its Dockerfile alone."""

KEY = "${TRITON_KEY:?run mmctl stack}"
COLLECTOR = "http://jaeger:4318/v1/traces"
REDIS_BYTES = "256mb"
GPUS = {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}

COMMENT = """\
Written by `mmctl stack`: Triton in NVIDIA's container on the tree that `mmctl serve` made last,
Prometheus, Grafana, Jaeger and a Redis (Valkey), on loopback ports only.

    mmctl stack                          # once: writes the key to .env, and the files in deploy/
    docker compose up --build            # on CPUs, by COMPOSE_PROFILES in .env
    docker compose --profile gpu up --build
    TRITON_RELEASE=25.01 docker compose up --build      # another release of Triton

Every instance of a Python model takes shared memory: docker's own 64 MB are too little."""


def render_compose(inventory: Inventory) -> str:
    on_cpu = Options(bls_threads=inventory.bls_threads, otlp_url=COLLECTOR, key=KEY)
    on_gpu = replace(on_cpu, gpus=True, config_name=GPU_PROFILE)
    services = {
        SERVICE: {"profiles": ["cpu"], **_triton(on_cpu)},
        "triton-gpu": {
            "profiles": ["gpu"],
            **_triton(on_gpu),
            "networks": {"default": {"aliases": [SERVICE]}},
            "deploy": {"resources": {"reservations": {"devices": [GPUS]}}},
        },
        "prometheus": {
            "image": IMAGES["prometheus"],
            "volumes": ["./deploy/prometheus:/etc/prometheus:ro", "prometheus:/prometheus"],
            "ports": [_port("PROMETHEUS", 9090)],
        },
        "grafana": {
            "image": IMAGES["grafana"],
            "environment": GRAFANA,
            "volumes": [
                "./deploy/grafana/provisioning:/etc/grafana/provisioning:ro",
                "./deploy/grafana/dashboards:/etc/grafana/dashboards:ro",
            ],
            "ports": [_port("GRAFANA", 3000)],
        },
        "jaeger": {
            "image": IMAGES["jaeger"],
            "ports": [_port("JAEGER", 16686), _port("OTLP", 4318)],
        },
        "redis": {
            "image": IMAGES["redis"],
            "command": [
                *("valkey-server", "--save", "", "--appendonly", "no"),
                *("--maxmemory", REDIS_BYTES, "--maxmemory-policy", "allkeys-lru"),
            ],
            "ports": [_port("REDIS", 6379)],
        },
    }
    return render_yaml(COMMENT, {"services": services, "volumes": {"prometheus": {}}})


GRAFANA = {
    # Whoever reaches the port may look; nobody can log in, so nobody can change anything.
    "GF_AUTH_ANONYMOUS_ENABLED": "true",
    "GF_AUTH_ANONYMOUS_ORG_ROLE": "Viewer",
    "GF_AUTH_BASIC_ENABLED": "false",
    "GF_AUTH_DISABLE_LOGIN_FORM": "true",
    "GF_ANALYTICS_REPORTING_ENABLED": "false",
    "GF_ANALYTICS_CHECK_FOR_UPDATES": "false",
}


def with_private(text: str, key: str) -> str:
    """The text of .env with what compose cannot do without: the key, and where Triton runs. What
    is there already stays.
    """
    set_already = set(re.findall(r"^\s*(?:export\s+)?(\w+)\s*=", text, re.MULTILINE))
    wanted = {"TRITON_KEY": key, "COMPOSE_PROFILES": "cpu"}
    lines = [f"{name}={value}\n" for name, value in wanted.items() if name not in set_already]
    begin = text if not text or text.endswith("\n") else f"{text}\n"
    return begin + "".join(lines)


def _triton(options: Options) -> dict[str, Any]:
    live = f"http://{HOST}:{INSIDE.http}/v2/health/live"
    return {
        # Without a value the variable is passed on when it is set, else the Dockerfile decides.
        "build": {"context": IMAGE_FOLDER, "args": ["TRITON_RELEASE"]},
        "command": ["tritonserver", *triton_flags(MODELS, INSIDE, options)],
        "shm_size": SHM_SIZE,
        "stop_grace_period": f"{EXIT_TIMEOUT_S + 5}s",
        "volumes": [f"${{MMCTL_SERVED:-./.mmctl/served/embedded}}:{MODELS}:ro"],
        "ports": [
            _port("TRITON_HTTP", INSIDE.http),
            _port("TRITON_GRPC", INSIDE.grpc),
            _port("TRITON_METRICS", INSIDE.metrics),
        ],
        "healthcheck": _health(["curl", "--silent", "--fail", "--output", "/dev/null", live]),
    }


def _health(command: Sequence[str]) -> dict[str, Any]:
    return {"test": ["CMD", *command], "interval": "10s", "timeout": "5s", "start_period": "120s"}


def _port(name: str, inside: int) -> str:
    return f"{HOST}:${{{name}_PORT:-{inside}}}:{inside}"
