"""The Docker engine: whether one answers, and how to remove a container."""

from __future__ import annotations

import contextlib
import os
import socket
from urllib.parse import urlsplit

_DEFAULT_SOCKET = "unix:///var/run/docker.sock"
_ENGINE_TIMEOUT_S = 3


def why_not_docker(image: str | None = None) -> str:
    """Returns why containers cannot be used; empty if an engine answers, and already has the image if one is named."""
    address = os.environ.get("DOCKER_HOST", _DEFAULT_SOCKET)
    if address.startswith("unix://"):
        # Try the socket here first, because the client library leaks its socket if nobody listens.
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(_ENGINE_TIMEOUT_S)
            try:
                probe.connect(urlsplit(address).path)
            except OSError:
                return f"no Docker engine answers at {address}"
    try:
        import docker
    except ImportError:
        return "the Docker client library is not installed"
    try:
        with contextlib.closing(docker.from_env(timeout=_ENGINE_TIMEOUT_S)) as client:
            client.ping()
            if image is not None:
                client.images.get(image)
    except docker.errors.ImageNotFound:
        return f"the Docker engine has no image {image}"
    except (docker.errors.DockerException, OSError) as error:
        return f"no Docker engine answers at {address}: {error}"
    return ""


def remove_container(container: str) -> None:
    """Stop and remove a container by id; does nothing if the container or the engine is gone."""
    if why_not_docker():
        return
    import docker

    with contextlib.closing(docker.from_env()) as client, contextlib.suppress(docker.errors.NotFound):
        client.containers.get(container).remove(force=True, v=True)
