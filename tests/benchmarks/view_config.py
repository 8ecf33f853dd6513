"""What a view under measurement is told."""

from __future__ import annotations

import json
from pathlib import Path

from tests.benchmarks.deployment import Deployment
from tests.benchmarks.servers import Servers


def folder(servers: Servers, store: str, run: int) -> str:
    """A folder of its own for each run."""
    return str(servers.directory / f"view-{store}-{run}")


def write_config(directory: Path, deployment: Deployment, store: str, name: str, port: int = 0) -> Path:
    """The configuration file of a view of a deployment's topics."""
    content = {
        "name": deployment.name,
        "source": {"slot": deployment.slot},
        "kafka": {"bootstrap": deployment.bootstrap},
        "view": {"store": store},
        **({"serve": {"port": port}} if port else {}),
    }
    path = directory / f"{name}.yaml"
    path.write_text(json.dumps(content))
    return path
