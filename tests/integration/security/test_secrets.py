"""No password is ever shown: success and failure, as loud as it gets, in logs, errors, metrics, ``ps`` and commands."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import psycopg
import pytest

from cdc.base.errors import ReplicaRefused, SourceRefused, TopicRefused
from cdc.lab.stack import PostgresServer
from tests.integration.security.pasting import bindings, cdc
from tests.integration.security.secured_kafka import SecuredKafka, secured_kafka
from tests.support.bridge_process import CdcProcess
from tests.support.deployment import Deployment, deployed
from tests.support.servers import fresh_database
from tests.support.waiting import eventually

SOURCE, KAFKA, REPLICA = "s0urce-\"p'a\\s%40", "k4fka-\"p'a\\s%40", "r3plica-\"p'a\\s%40"
WRONG: Final = "wr0ng-\"p'a\\s%40"
ROLES: Final = {"captor": SOURCE, "keeper": REPLICA}


@dataclass
class Loud:
    """A deployment that logs whatever can be logged, and all that it and its commands ever said."""

    deployment: Deployment
    said: dict[str, str] = field(default_factory=dict)

    def configure(self, source: str = SOURCE, kafka: str = KAFKA, replica: str = REPLICA) -> None:
        """With these passwords."""
        for section, password in (("source", source), ("kafka", kafka), ("sink", replica)):
            self.deployment.settings[section]["password"] = password
        self.deployment.write()

    def command(self, *words: str) -> None:
        """Run a command in this process and keep what it said."""
        done = cdc(*words, "-c", self.deployment.config)
        self.said[" ".join(words)] = f"{done.output}{done.exception!r}{done.exception}"

    def keep_logs(self) -> None:
        """Keep what the processes wrote."""
        for process in (self.deployment.bridge, self.deployment.sink):
            self.said[process.log.name] = process.log.read_text(errors="replace")

    def leaks(self) -> list[str]:
        """Where a secret can be read, in any spelling, with what is around it."""
        found = []
        for place, text in self.said.items():
            for secret in (SOURCE, KAFKA, REPLICA, WRONG):
                for form in {secret, json.dumps(secret)[1:-1], repr(secret)[1:-1], quote(secret, safe=""), secret[:7]}:
                    if (at := text.find(form)) >= 0:
                        found.append(f"{place}: {text[max(at - 200, 0) : at + 100]}")
        return found


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """Asks both roles for their passwords."""
    with PostgresServer.open(fsync=False) as started:
        rules = started.directory / "data" / "pg_hba.conf"
        asked = "".join(f"host all {role} 127.0.0.1/32 scram-sha-256\n" for role in ROLES)
        rules.write_text(asked + rules.read_text())
        with psycopg.connect(started.dsn(), autocommit=True) as admin:
            for role, password in ROLES.items():
                literal = psycopg.sql.Literal(password)
                admin.execute(psycopg.sql.SQL(f"CREATE ROLE {role} LOGIN SUPERUSER PASSWORD {{}}").format(literal))
            admin.execute("SELECT pg_reload_conf()")
        yield started


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with secured_kafka(tmp_path_factory.mktemp("certificates")) as broker:
        broker.user("captor", KAFKA)
        yield broker


@pytest.fixture
def loud(
    server: PostgresServer, kafka: SecuredKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Loud]:
    monkeypatch.setenv("CDC_LOG_LEVEL", "debug")
    with ExitStack() as stack:
        source, replica = (stack.enter_context(fresh_database(server)) for _ in range(2))
        source.execute("CREATE TABLE items (id integer PRIMARY KEY)")
        section = kafka.section("captor", KAFKA)
        section["options"]["debug"] = "conf,security,broker,protocol,eos"
        sections: dict[str, dict[str, Any]] = {
            "source": {"dsn": source.dsn.replace("postgres@", "captor@")},
            "kafka": section,
            "sink": {"dsn": replica.dsn.replace("postgres@", "keeper@")},
            "http": {"bridge_port": 0, "sink_port": 0},
        }
        made = Loud(
            stack.enter_context(deployed(source, kafka.broker.bootstrap, replica, tmp_path, sections, CdcProcess))
        )
        made.configure()
        kafka.allow(bindings(cdc("grants", "kafka", "-c", made.deployment.config).output.partition("# What sink")[0]))
        yield made


def metrics(process: CdcProcess) -> str:
    """What its HTTP port tells."""

    found = eventually(lambda: re.search(r'"url": "(http://[^"]+)"', process.said()), message=process.tail)
    assert found is not None
    answers = []
    for path in ("/metrics", "/live"):
        with urllib.request.urlopen(f"{found[1]}{path}", timeout=10) as answer:
            answers.append(answer.read().decode())
    return "".join(answers)


def test_no_secret_is_ever_shown(loud: Loud) -> None:
    deployment = loud.deployment
    bridge, sink = deployment.bridge, deployment.sink
    deployment.start()
    deployment.source.execute("INSERT INTO items SELECT generate_series(1, 10)")
    deployment.assert_equal("public.items")
    for process in (bridge, sink):
        loud.said[f"/proc/{process.command}"] = Path(f"/proc/{process.pid}/cmdline").read_text()
        loud.said[f"metrics of {process.command}"] = metrics(process)
    for words in (["status"], ["status", "--json"], ["check"], ["check", "--json"], ["config", "show"]):
        loud.command(*words)
    for part in ("source", "sink", "kafka"):
        loud.command("grants", part)
    deployment.source.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename IN ('captor', 'keeper')"
    )
    bridge.wait_said("trying again")
    deployment.source.execute("INSERT INTO items VALUES (11)")
    deployment.assert_equal("public.items")
    deployment.stop()

    loud.configure(source=WRONG)
    bridge.start()
    bridge.refusal(SourceRefused.exit_code)
    loud.command("grants", "source")
    loud.configure(kafka=WRONG)
    for process in (bridge, sink):
        process.start()
        process.refusal(TopicRefused.exit_code)
    loud.configure(replica=WRONG)
    sink.start()
    sink.refusal(ReplicaRefused.exit_code)
    loud.configure(source=WRONG, kafka=WRONG, replica=WRONG)
    for command in ("status", "check"):
        loud.command(command)
    loud.keep_logs()

    everything = "".join(loud.said.values())
    for expected in ("password authentication failed", "Authentication failed", "SASL", "sasl.username", "captor"):
        assert expected in everything  # it was loud, and a leak would be among it
    assert loud.leaks() == []


@pytest.mark.parametrize(
    "section",
    [
        {"source": {"dsn": f"postgresql://captor:{quote(SOURCE, safe='')}@127.0.0.1:1:2/x"}},
        {"source": {"dsn": f"host=x password={WRONG}"}},
        {"source": {"dsn": f"postgresql://captor:{quote(SOURCE, safe='')}@127.0.0.1:1/x", "slot": "NOT A SLOT"}},
        {"kafka": {"options": {"sasl.password": KAFKA}}},
        {"kafka": {"options": {"ssl.key.password": KAFKA, "no.such.option": 1}}},
    ],
    ids=["url", "keywords", "another mistake", "reserved option", "unknown option"],
)
def test_a_configuration_that_is_refused_shows_no_secret(tmp_path: Path, section: dict[str, dict[str, Any]]) -> None:
    settings = {
        "name": "shop",
        "source": {"dsn": "host=127.0.0.1 port=1 user=captor", **section.get("source", {})},
        "kafka": {"bootstrap": "127.0.0.1:1", **section.get("kafka", {})},
    }
    config = tmp_path / "shop.yaml"
    config.write_text(json.dumps(settings))
    said = ""
    for command in (["config", "show"], ["grants", "source"]):
        done = cdc(*command, "-c", config)
        said += f"{done.output}{done.exception!r}{done.exception}"
    for secret in (SOURCE, KAFKA, WRONG):
        for form in (secret, quote(secret, safe=""), json.dumps(secret)[1:-1], secret[:7]):
            assert form not in said
