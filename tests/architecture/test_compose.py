"""docker-compose.yml: every command, path, port and variable in it exists in the code and the files beside it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from cdc.base.config import Config, load
from cdc.base.config.environment import origins
from cdc.cli.commands import COMMANDS
from cdc.cli.commands import load as load_command
from cdc.lab.stack.artefacts import read_lock
from cdc.lab.stack.containers import KAFKA_IMAGE, REGISTRY_IMAGE
from cdc.lab.stack.registry import CONFLUENT_PATH, REGISTRY_LOCK
from tests.architecture.tree import ROOT

TEXT = (ROOT / "docker-compose.yml").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
DAEMONS = ("bridge", "sink")
VARIABLE = re.compile(r"\$\{(\w+):\?copy (\S+) to \.env\}")


def config_of(daemon: str) -> Config:
    """What the container loads: its mounted file under its environment."""
    service = SERVICES[daemon]
    inside = service["command"][service["command"].index("-c") + 1]
    mounts = dict(mount.split(":")[:2][::-1] for mount in service["volumes"])
    environ = {name: VARIABLE.sub("from-the-environment", value) for name, value in service["environment"].items()}
    return load(ROOT / mounts[inside], environ)


def test_services() -> None:
    assert set(SERVICES) == {"source", "kafka", "registry", "replica", *DAEMONS}


def test_is_read_by_old_and_new_compose() -> None:
    assert set(COMPOSE) == {"services", "volumes"}, "no version: (new warns), no name: (old refuses)"
    assert "!reset" not in TEXT


@pytest.mark.parametrize("daemon", DAEMONS)
def test_command_exists_with_its_options(daemon: str) -> None:
    command, *arguments = SERVICES[daemon]["command"]
    assert command in COMMANDS
    options = {option for parameter in load_command(command).params for option in parameter.opts}
    assert {argument for argument in arguments if argument.startswith("-")} <= options


def test_commands_told_in_comments_exist() -> None:
    told = set(re.findall(r"\bcdc ([a-z]+)\b(?=[ `])", TEXT))
    assert told <= set(COMMANDS)


@pytest.mark.parametrize("daemon", DAEMONS)
def test_configuration_is_mounted_and_loads(daemon: str) -> None:
    config = config_of(daemon)
    assert config.sink is not None
    assert config.sink.connection()["password"] == "from-the-environment"


def test_bridge_gets_the_sources_password() -> None:
    assert config_of("bridge").source.connection()["password"] == "from-the-environment"


@pytest.mark.parametrize("daemon", DAEMONS)
def test_variables_for_us_are_known(daemon: str) -> None:
    environment = SERVICES[daemon]["environment"]
    assert set(origins(environment).values()) == set(environment)


def test_hosts_are_services() -> None:
    config = config_of("bridge")
    assert config.sink is not None
    assert config.source.dsn is not None
    assert config.sink.dsn is not None
    assert "host=source dbname=shop user=cdc" in config.source.dsn.get_secret_value()
    assert "host=replica dbname=shop user=replica" in config.sink.dsn.get_secret_value()
    assert SERVICES["source"]["environment"]["POSTGRES_DB"] == "shop"
    assert SERVICES["replica"]["environment"]["POSTGRES_DB"] == "shop"
    assert SERVICES["replica"]["environment"]["POSTGRES_USER"] == "replica"
    assert f"CLIENT://{config.kafka.bootstrap}" in SERVICES["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]


@pytest.mark.parametrize("daemon", DAEMONS)
def test_probe_port_is_served_and_published_on_loopback(daemon: str) -> None:
    http = config_of(daemon).http
    port = http.bridge_port if daemon == "bridge" else http.sink_port
    assert http.host == "0.0.0.0"
    assert SERVICES[daemon]["ports"] == [f"127.0.0.1:{port}:{port}"]
    assert f"http://127.0.0.1:{port}/ready" in SERVICES[daemon]["healthcheck"]["test"][-1]


def test_ports_are_published_on_loopback_once() -> None:
    published = [port for service in SERVICES.values() for port in service["ports"]]
    assert all(port.startswith("127.0.0.1:") for port in published)
    assert len({port.split(":")[1] for port in published}) == len(published)


def test_services_are_watched_and_restarted() -> None:
    for name, service in SERVICES.items():
        assert {"test", "interval", "timeout", "retries"} <= set(service["healthcheck"]), name
        assert service["restart"] == "unless-stopped", name
        for needed, how in service.get("depends_on", {}).items():
            assert needed in SERVICES
            assert how == {"condition": "service_healthy"}


def test_paths_exist_and_volumes_are_declared() -> None:
    for name, service in SERVICES.items():
        for mount in service.get("volumes", ()):
            outside = mount.split(":")[0]
            assert (ROOT / outside).is_file() if outside.startswith(".") else outside in COMPOSE["volumes"], (
                f"{name}: {mount}"
            )
        if build := service.get("build"):
            assert (ROOT / build["context"] / build["dockerfile"]).is_file()
    used = {mount.split(":")[0] for service in SERVICES.values() for mount in service.get("volumes", ())}
    assert set(COMPOSE["volumes"]) <= used


def test_variables_are_required_and_all_in_the_example_file() -> None:
    asked = re.findall(r"\$\{[^}]*\}", TEXT)
    matches = [VARIABLE.fullmatch(variable) for variable in asked]
    assert all(matches), "no defaults: a password is given, or nothing starts"
    files = {match[2] for match in matches if match}
    assert files == {"config/docker/example.env"}
    lines = [line for line in (ROOT / files.pop()).read_text().splitlines() if line and not line.startswith("#")]
    example = dict(line.split("=", 1) for line in lines)
    assert {match[1] for match in matches if match} == set(example)
    assert all(value.startswith("change-me") for value in example.values())
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    assert ".env" in ignored


def test_source_script_reads_variables_that_the_service_has() -> None:
    script = (ROOT / "config/docker/source-init.sql").read_text()
    asked = set(re.findall(r"^\\getenv \w+ (\w+)$", script, re.MULTILINE))
    assert asked
    assert asked <= set(SERVICES["source"]["environment"])
    assert "wal_level=logical" in SERVICES["source"]["command"]


def test_kafka_is_the_tested_version_and_its_listeners_agree() -> None:
    kafka = SERVICES["kafka"]
    assert kafka["image"] == KAFKA_IMAGE
    environment = kafka["environment"]
    listening = dict(part.split("://") for part in environment["KAFKA_LISTENERS"].split(","))
    advertised = dict(part.split("://") for part in environment["KAFKA_ADVERTISED_LISTENERS"].split(","))
    mapped = dict(part.split(":") for part in environment["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"].split(","))
    assert set(mapped) == set(listening) == {*advertised, "CONTROLLER"}
    assert environment["KAFKA_INTER_BROKER_LISTENER_NAME"] == "BROKER"
    assert advertised["BROKER"] == f"localhost{listening['BROKER']}"
    assert f"127.0.0.1:{advertised['HOST'].split(':')[1]}{listening['HOST']}" in kafka["ports"]


def test_image_has_one_extra_and_is_not_root() -> None:
    dockerfile = (ROOT / "config/docker/Dockerfile").read_text()
    assert "FROM python:3.11-slim" in dockerfile
    assert re.search(r"^USER \d+$", dockerfile, re.MULTILINE)
    assert re.findall(r"pip install.*\[(.*)\]", dockerfile) == ["registry"]


def test_avro_is_one_step_away() -> None:
    """What is commented out loads, and the registry that it names is the one that is started for it."""
    lines = (ROOT / "config/docker.yaml").read_text().splitlines()
    begins = lines.index("# topics:")
    taken = [
        line.removeprefix("# ") if place >= begins and line.startswith("# ") else line
        for place, line in enumerate(lines)
    ]
    config = Config.model_validate(yaml.safe_load("\n".join(taken)))
    registry = SERVICES["registry"]
    assert config.topics.format == "avro"
    assert config.registry is not None
    assert config.registry.url == f"http://registry:8080{CONFLUENT_PATH}"
    assert registry["image"] == REGISTRY_IMAGE
    assert REGISTRY_IMAGE.endswith(":" + next(iter(read_lock(REGISTRY_LOCK))).version)
    assert registry["ports"] == ["127.0.0.1:8081:8080"]
    assert registry["environment"]["APICURIO_KAFKASQL_BOOTSTRAP_SERVERS"] == config.kafka.bootstrap
    assert registry["profiles"] == ["registry"], "who writes JSON needs none"


def test_image_is_built_from_all_that_its_packages_need() -> None:
    copied = let_through()
    linked = {path.readlink().name for path in (ROOT / "cdc").rglob("*") if path.is_symlink()}
    assert {"cdc", "pyproject.toml", "setup.py", "README.md", "LICENSE", *linked} == set(copied)


def let_through() -> list[str]:
    """What the Dockerfile copies out of the build context; all of it must pass .dockerignore."""
    dockerfile = (ROOT / "config/docker/Dockerfile").read_text()
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    allowed = {line.removeprefix("!") for line in lines if line.startswith("!")}
    assert "*" in lines
    names = [
        name for source in re.findall(r"^COPY (?!--from)(.+) \S+$", dockerfile, re.MULTILINE) for name in source.split()
    ]
    for name in names:
        assert (ROOT / name).exists(), name
        assert Path(name).name in allowed, name
    return names


def test_logs_are_rotated_and_daemons_have_an_init() -> None:
    for name, service in SERVICES.items():
        assert {"max-size", "max-file"} <= set(service["logging"]["options"]), name
    assert all(SERVICES[daemon]["init"] is True for daemon in DAEMONS)


def test_a_health_check_starts_no_jvm() -> None:
    command = SERVICES["kafka"]["healthcheck"]["test"]
    listeners = SERVICES["kafka"]["environment"]["KAFKA_LISTENERS"]
    assert command[:3] == ["CMD", "bash", "-c"]
    assert f"BROKER://:{command[3].rpartition('/')[2]}" in listeners


def test_image_starts_our_entry_point() -> None:
    assert 'ENTRYPOINT ["cdc"]' in (ROOT / "config/docker/Dockerfile").read_text()
    assert 'cdc = "cdc.__main__:main"' in (ROOT / "pyproject.toml").read_text()
