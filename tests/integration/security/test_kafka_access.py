"""Kafka over TLS with SASL/SCRAM: works with just the printed ACLs; what is missing or wrong is said by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.admin import AclOperation, ResourceType

from cdc.base.config import load
from cdc.base.errors import ConfigError, TopicRefused, TopicUnavailable
from cdc.contract.naming import progress_topic, schemas_topic
from cdc.kafka.acls import BRIDGE_ON_TOPICS, Acl, transactional_id
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.leaders import LeaderEpochs
from cdc.kafka.publish.application import ApplicationProducer
from cdc.lab.stack import Postgres
from tests.integration.security.pasting import bindings, cdc, refused_bridge, refused_sink, remedy
from tests.integration.security.secured_kafka import SecuredKafka, secured_kafka
from tests.support.bridge_process import CdcProcess
from tests.support.deployment import Deployment, deployed
from tests.support.servers import fresh_database
from tests.support.waiting import eventually

PASSWORD = "correct horse"


@dataclasses.dataclass
class Secured:
    """A bridge and a sink, each a SCRAM user of its own with the ACLs that ``cdc grants kafka`` printed for it."""

    kafka: SecuredKafka
    deployment: Deployment
    bridge_user: str = field(init=False)
    sink_user: str = field(init=False)
    sink_config: Path = field(init=False)

    def __post_init__(self) -> None:
        deployment = self.deployment
        self.bridge_user, self.sink_user = f"bridge_{deployment.name}", f"sink_{deployment.name}"
        self.sink_config = deployment.directory / "sink.yaml"
        deployment.sink = CdcProcess("sink", self.sink_config, deployment.sink.log)

    @property
    def config(self) -> Path:
        """The bridge's."""
        return self.deployment.config

    def printed(self, part: str) -> str:
        """The lines for bridge or sink."""
        output = cdc("grants", "kafka", "-c", self.config if part == "bridge" else self.sink_config).output
        return next(block for block in output.split("# ") if block.startswith(f"What {part}")).partition("\n")[2]

    def configure(self, *, password: str = PASSWORD, bootstrap: str = "", **options: str) -> None:
        """Write both configurations, with another password or other librdkafka options."""
        for user, path in ((self.sink_user, self.sink_config), (self.bridge_user, self.config)):
            section = self.kafka.section(user, password)
            section["bootstrap"] = bootstrap or section["bootstrap"]
            section["options"].update(options)
            self.deployment.settings["kafka"] = section
            path.write_text(yaml.safe_dump(self.deployment.settings))

    def start_afresh(self) -> None:
        """The right configuration, and just the printed ACLs."""
        self.configure()
        for user in (self.bridge_user, self.sink_user):
            self.kafka.take_away(user)
        self.kafka.allow([*bindings(self.printed("bridge")), *bindings(self.printed("sink"))])


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with secured_kafka(tmp_path_factory.mktemp("certificates")) as broker:
        yield broker


@pytest.fixture(scope="module")
def secured(
    kafka: SecuredKafka, postgres: Postgres, other_postgres: Postgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Secured]:
    with ExitStack() as stack:
        source, replica = (stack.enter_context(fresh_database(server)) for server in (postgres, other_postgres))
        source.execute("CREATE TABLE items (id integer PRIMARY KEY, note text)")
        directory = tmp_path_factory.mktemp("secured")
        deployment = stack.enter_context(deployed(source, kafka.broker.bootstrap, replica, directory, kind=CdcProcess))
        made = Secured(kafka, deployment)
        kafka.user(made.bridge_user, PASSWORD)
        kafka.user(made.sink_user, PASSWORD)
        made.start_afresh()
        deployment.start_bridge()  # so that its topics are there
        deployment.bridge.stop()
        yield made


@pytest.fixture(autouse=True)
def restored(secured: Secured) -> Iterator[None]:
    """Each test begins with the right configuration and just the printed ACLs."""
    secured.start_afresh()
    yield
    secured.deployment.bridge.kill()
    secured.deployment.sink.kill()


def test_everything_works_with_just_these_acls(secured: Secured) -> None:
    deployment, source = secured.deployment, secured.deployment.source
    deployment.start()
    source.execute("INSERT INTO items SELECT i, 'x' FROM generate_series(1, 100) i")
    source.execute("TRUNCATE items; INSERT INTO items VALUES (1, 'after')")
    deployment.assert_equal("public.items")
    for command in ("status", "check"):
        done = cdc(command, "-c", deployment.config)
        assert done.exit_code == 0, done.output
    deployment.stop()


def test_without_a_right_on_their_group_both_work_and_the_sink_says_what_is_missing(secured: Secured) -> None:
    deployment, source, kafka = secured.deployment, secured.deployment.source, secured.kafka
    for user, part in ((secured.bridge_user, "bridge"), (secured.sink_user, "sink")):
        kafka.take_away(user)
        kafka.allow([each for each in bindings(secured.printed(part)) if each.restype != ResourceType.GROUP])
    deployment.start()
    deployment.sink.wait_said("Kafka does not let the sink store its offsets")
    assert f"--operation Read --group {deployment.name}.sink" in deployment.sink.said()
    deployment.command("backfill", "public.items", "--no-follow")
    deployment.bridge.wait_said("backfill done")
    source.execute("INSERT INTO items VALUES (0, 'after')")
    deployment.assert_equal("public.items")
    deployment.stop()


def test_init_prints_these_acls(secured: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without any right may look. The lines are those of ``cdc grants kafka``, which are enough."""
    deployment, kafka = secured.deployment, secured.kafka
    user, path = f"init_{deployment.name}", tmp_path / "shop.yaml"
    kafka.user(user, PASSWORD)
    monkeypatch.setenv("CDC_KAFKA__PASSWORD", PASSWORD)
    section = kafka.section(user, PASSWORD)
    options = [word for pair in section["options"].items() for word in ("-X", "=".join(pair))]
    servers = ["--source", deployment.source.dsn, "--kafka", section["bootstrap"], "--name", f"i{deployment.name}"]
    done = cdc("init", "-c", path, *servers, *options)
    assert done.exit_code == 0, done.output
    assert PASSWORD not in done.output + path.read_text()
    lines = [line for line in done.output.splitlines() if line.startswith("kafka-acls.sh")]
    granted = cdc("grants", "kafka", "-c", path).output.splitlines()
    assert lines == [line for line in granted if not line.startswith("#")]
    assert len(list(bindings("\n".join(lines)))) >= 6


def test_remedies_pasted_one_after_the_other_lead_there(secured: Secured) -> None:
    """With no rights at all, each refusal names one command; when all were pasted, bridge and sink work."""
    deployment, kafka = secured.deployment, secured.kafka
    kafka.take_away(secured.bridge_user)
    kafka.take_away(secured.sink_user)
    paste_until(lambda: '"streaming"' in deployment.bridge.said(), deployment.bridge, kafka)
    deployment.source.execute("INSERT INTO items VALUES (1000, 'by remedies')")
    inserted = deployment.now()
    paste_until(lambda: (cut := deployment.cut()) is not None and cut >= inserted, deployment.sink, kafka)
    deployment.assert_equal("public.items")
    deployment.stop()


def paste_until(works: Callable[[], bool], process: CdcProcess, kafka: SecuredKafka) -> None:
    """Start a process, paste what it asks for when it is refused, start it again, and so on."""
    pasted: set[str] = set()
    while True:
        process.start()
        eventually(lambda: works() or process.ended, 60, process.tail)
        if not process.ended:
            return
        said = process.refusal(TopicRefused.exit_code)
        assert remedy(said) not in pasted, said
        pasted.add(remedy(said))
        kafka.allow(bindings(remedy(said)))


def test_a_bridge_without_quarantine_needs_no_right_on_its_topic(secured: Secured) -> None:
    """Rights may be narrower than the printed ones: one topic each. Nothing is asked of a topic that is not used."""
    deployment, kafka, source = secured.deployment, secured.kafka, secured.deployment.source
    deployment.start()
    source.execute("INSERT INTO items VALUES (1100, 'before')")
    deployment.assert_equal("public.items")
    deployment.bridge.stop()
    kafka.take_away(secured.bridge_user, kind=ResourceType.TOPIC)
    options = load(secured.config, {}).kafka.client_options()
    for topic in (progress_topic(deployment.name), schemas_topic(deployment.name), deployment.topic("public.items")):
        kafka.allow(bindings(Acl("topic", topic, BRIDGE_ON_TOPICS).command(options)))
    deployment.bridge.start()
    source.execute("INSERT INTO items VALUES (1101, 'after')")
    deployment.assert_equal("public.items")
    deployment.stop()


def test_bridge_without_its_transactional_id(secured: Secured) -> None:
    secured.kafka.take_away(secured.bridge_user, kind=ResourceType.TRANSACTIONAL_ID)
    error = refused_bridge(secured.deployment.config)
    assert isinstance(error, TopicRefused)
    assert f"transactional id 'cdc-{secured.deployment.name}'" in error.message
    wanted = f"--allow-principal User:{secured.bridge_user} --operation Write --transactional-id cdc-"
    assert wanted in error.remedy
    assert error.remedy.startswith(secured.printed("bridge").splitlines()[0])


@pytest.mark.parametrize(
    ("operation", "words"),
    [
        (AclOperation.DESCRIBE_CONFIGS, "not authorised to describe topic"),
        (AclOperation.READ, "not authorised to read topic"),
        (AclOperation.WRITE, "not authorised to write"),
    ],
)
def test_bridge_without_one_operation_on_topics(secured: Secured, operation: AclOperation, words: str) -> None:
    deployment = secured.deployment
    secured.kafka.take_away(secured.bridge_user, operation, ResourceType.TOPIC)
    deployment.source.execute("INSERT INTO items VALUES (2000, 'x') ON CONFLICT (id) DO UPDATE SET note = 'y'")
    error = refused_bridge(deployment.config)
    assert isinstance(error, TopicRefused)
    assert words in error.message
    wanted = list(bindings(error.remedy))
    assert operation in {each.operation for each in wanted}
    assert {each.principal for each in wanted} == {f"User:{secured.bridge_user}"}
    assert all(each.name.startswith(f"{deployment.name}.") and each.name in error.message for each in wanted)


def test_a_refusal_that_comes_between_two_records_is_told(secured: Secured) -> None:
    """librdkafka then says of the next record only that the state is wrong: that is no outage to try again after."""
    topic = f"{secured.deployment.name}.public.items"
    secured.kafka.take_away(secured.bridge_user, AclOperation.WRITE, ResourceType.TOPIC)
    config = load(secured.config, {})
    producer = ApplicationProducer(
        config.kafka.client_options(), transactional_id=transactional_id(config.name), max_message_bytes=1_000_000
    )
    producer.start()
    with pytest.raises(TopicRefused, match="not authorised to write topic"):
        eventually(lambda: producer.produce(topic, b'{"id":1}', None))
    producer.close()


def test_bridge_that_may_not_create_topics(secured: Secured) -> None:
    secured.kafka.take_away(secured.bridge_user, AclOperation.CREATE)
    secured.deployment.source.execute("CREATE TABLE later (id integer PRIMARY KEY)")
    error = refused_bridge(secured.deployment.config)
    assert isinstance(error, TopicRefused)
    assert "not authorised to create topic" in error.message
    assert AclOperation.CREATE in {each.operation for each in bindings(error.remedy)}
    secured.deployment.source.execute("DROP TABLE later")


def test_sink_that_may_not_read(secured: Secured) -> None:
    secured.kafka.take_away(secured.sink_user, AclOperation.READ)
    error = refused_sink(secured.sink_config)
    assert isinstance(error, TopicRefused)
    assert "not authorised to read topic" in error.message
    assert [each.operation for each in bindings(error.remedy)] == [AclOperation.READ]


def wrong_password(secured: Secured) -> None:
    secured.configure(password="wrong horse")


def wrong_user(secured: Secured) -> None:
    secured.configure(**{"sasl.username": "nobody"})


def wrong_mechanism(secured: Secured) -> None:
    secured.configure(**{"sasl.mechanism": "PLAIN"})


def wrong_authority(secured: Secured) -> None:
    secured.configure(**{"ssl.ca.location": str(secured.kafka.stranger)})


def wrong_name(secured: Secured) -> None:
    """The certificate is the address's, not the name's."""
    secured.configure(bootstrap=secured.kafka.broker.listener("SASL_SSL").replace("127.0.0.1", "localhost"))


@pytest.mark.parametrize(
    ("mistake", "words", "key"),
    [
        (wrong_password, "Kafka refused the connection", "kafka.password"),
        (wrong_user, "Kafka refused the connection", "sasl.username"),
        (wrong_mechanism, "Unsupported SASL mechanism", "sasl.mechanism"),
        (wrong_authority, "certificate verify failed", "ssl.ca.location"),
        (wrong_name, "certificate verify failed", "kafka.bootstrap"),
    ],
)
def test_a_connection_that_no_retry_will_mend(secured: Secured, mistake: Any, words: str, key: str) -> None:
    mistake(secured)
    for error in (refused_bridge(secured.config), refused_sink(secured.sink_config)):
        assert isinstance(error, TopicRefused)
        assert words in error.message
        assert key in error.remedy
    for command in ("check", "status"):
        said = cdc(command, "-c", secured.config)
        assert said.exit_code != 0, said.output
        assert words in " ".join(said.output.split())


def test_a_file_that_is_not_there(secured: Secured) -> None:
    secured.configure(**{"ssl.ca.location": "/nowhere/ca.pem"})
    for error in (refused_bridge(secured.config), refused_sink(secured.sink_config)):
        assert isinstance(error, ConfigError)
        assert "ssl.ca.location" in error.message


def test_a_listener_of_another_protocol_is_an_outage_with_the_reason(secured: Secured) -> None:
    """A port can be anything while brokers restart, so this may pass by itself."""
    secured.configure(bootstrap=secured.kafka.broker.bootstrap)
    admin = BrokerAdmin(load(secured.config, {}).kafka.client_options())
    with pytest.raises(TopicUnavailable, match="SSL") as caught:
        admin.metadata(timeout_s=1.0)
    assert "security.protocol" in caught.value.remedy


def test_batches_are_fetched_through_the_same_door(secured: Secured) -> None:
    """``cdc topics`` speaks Kafka's protocol itself, for what the client library does not ask."""
    said = cdc("topics", "inspect", "-c", secured.config, "--json")
    assert said.exit_code in (0, 1), said.output
    assert f'"topic": "{secured.deployment.name}.__progress"' in said.output

    secured.configure(password="wrong")
    said = cdc("topics", "inspect", "-c", secured.config)
    assert (said.exit_code, "Authentication failed" in " ".join(said.output.split())) == (2, True), said.output


def test_who_leads_is_asked_through_the_same_door_with_the_same_rights(secured: Secured) -> None:
    """A cluster of one broker is never asked; this is how each of several is."""
    deployment = secured.deployment
    place = deployment.topic("public.items"), 0

    def newest(path: Path) -> Mapping[tuple[str, int], int | None] | None:
        options = load(path, {}).kafka.client_options()
        brokers = {number: (str(each.host), each.port) for number, each in known.items()}
        return LeaderEpochs(brokers, options).newest([place])

    known = BrokerAdmin(load(secured.config, {}).kafka.client_options()).metadata(timeout_s=10).brokers
    for path in (secured.config, secured.sink_config):
        # A busy machine may not log in within the second that a client spends on this
        assert eventually(partial(newest, path)) == {place: 0}
    secured.kafka.take_away(secured.sink_user)
    assert eventually(lambda: newest(secured.sink_config) == {place: None}), "who may not see a topic learns nothing"
    wrong_password(secured)
    assert newest(secured.config) is None, "only the client library can say why"
