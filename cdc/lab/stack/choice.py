"""Decides which PostgreSQL, Kafka, Redis and schema registry to use, and says why.

First come those given by URL, then containers, then embedded ones.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal, NamedTuple

from cdc.base.errors import StackError
from cdc.lab.stack.containers import KAFKA_IMAGE, REDIS_IMAGE, REGISTRY_IMAGE, postgres_image
from cdc.lab.stack.engine import why_not_docker

Backend = Literal["auto", "docker", "embedded"]
Server = Literal["PostgreSQL", "Kafka", "Redis", "Registry"]

URL_VARIABLES: Mapping[Server, str] = {
    "PostgreSQL": "CDC_PG_URL",
    "Kafka": "CDC_KAFKA",
    "Redis": "CDC_REDIS_URL",
    "Registry": "CDC_REGISTRY_URL",
}


class Choice(NamedTuple):
    """The choice for one server. ``url`` is set only if the backend is ``url``."""

    server: Server
    backend: Literal["url", "docker", "embedded"]
    reason: str
    url: str = ""

    def __str__(self) -> str:
        return f"{self.server}: {self.backend}, because {self.reason}"


def choose(server: Server, *, url: str | None = None, backend: Backend = "auto", pg_major: int = 16) -> Choice:
    """Decide where one server comes from.

    A backend that is named is used or refused, never replaced. ``auto`` uses the URL from the environment
    (``URL_VARIABLES``), else Docker if an engine answers and already has the image, else an embedded server.

    Args:
        server: the server to decide for.
        url: a server of the caller's own, which is used in any case.
        backend: the backend that the caller insists on.
        pg_major: the PostgreSQL version whose image the engine must have.

    Raises:
        StackError: Docker was asked for, but no engine answers.
    """
    if url:
        return Choice(server, "url", "its address was given", url)
    if backend == "embedded":
        return Choice(server, "embedded", "it was asked for")
    if backend == "docker":
        missing = why_not_docker()
        if missing:
            raise StackError(
                f"{server} was asked for in Docker, but {missing}",
                remedy="start the Docker engine (or set DOCKER_HOST), or ask for the embedded servers",
            )
        return Choice(server, "docker", "it was asked for")
    variable = URL_VARIABLES[server]
    url = os.environ.get(variable)
    if url:
        return Choice(server, "url", f"{variable} is set", url)
    images = {"Kafka": KAFKA_IMAGE, "Redis": REDIS_IMAGE, "Registry": REGISTRY_IMAGE}
    image = images.get(server) or postgres_image(pg_major)
    missing = why_not_docker(image)
    if missing:
        return Choice(server, "embedded", f"{variable} is not set and {missing}")
    return Choice(server, "docker", f"{variable} is not set and a Docker engine with {image} answers")


def probe(*, backend: Backend = "auto", pg_major: int = 16) -> list[Choice]:
    """Returns what ``open_stack`` would use for each server, and starts nothing."""
    return [choose(server, backend=backend, pg_major=pg_major) for server in URL_VARIABLES]
