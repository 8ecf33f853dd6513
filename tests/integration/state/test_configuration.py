"""Settings of a service: checked on both sides, the same in every instance, watched, with versions and a way back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import orjson
import pytest
from confluent_kafka import Producer
from pydantic import BaseModel, Field, SecretStr

from cdc.base.errors import ConfigError, FencedError, TopicRefused, ValueRefused, VersionConflict
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.publish.topics import TopicAdmin, TopicSpecification
from cdc.state import ConfigStore, ConfigWriter, Setting, TopicsConfig
from tests.support.reading import fold_topic
from tests.support.topic_settings import delete_records, make_topic
from tests.support.waiting import eventually


class Checkout(BaseModel):
    timeout_s: float = Field(default=5, gt=0)
    methods: list[str] = ["card"]


class Flags(BaseModel):
    new_search: bool = False


class Secret(BaseModel):
    password: SecretStr = SecretStr("x")


MODELS: dict[str, type[BaseModel]] = {"checkout": Checkout, "feature-flags": Flags, "secret": Secret}


@pytest.fixture
def writer(options: dict[str, Any], name: str) -> Iterator[ConfigWriter]:
    with ConfigWriter(options, name, MODELS, create=TopicsConfig(partitions=2)) as opened:
        yield opened


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def instance(
    options: dict[str, Any], name: str, stack: ExitStack
) -> tuple[ConfigStore, Setting[Checkout], Setting[Flags]]:
    store = stack.enter_context(ConfigStore(options, name))
    return store, store.setting("checkout", Checkout()), store.setting("feature-flags", Flags())


def poll_until(store: ConfigStore, condition: Callable[[], bool]) -> None:
    def holds() -> bool:
        store.poll(0.1)
        return condition()

    eventually(holds)


def write_raw(options: dict[str, Any], topic: str, key: bytes, value: bytes | None) -> None:
    producer = Producer({**options, "partitioner": "murmur2_random"})
    producer.produce(topic, key=key, value=value)
    producer.flush()


def test_defaults_then_the_topics_values_in_every_instance(
    options: dict[str, Any], name: str, writer: ConfigWriter, stack: ExitStack
) -> None:
    store, checkout, flags = instance(options, name, stack)
    store.load()
    assert (checkout.value, checkout.version, flags.value) == (Checkout(), 0, Flags())
    assert writer.put("checkout", {"timeout_s": 2}) == 1
    assert writer.put("checkout", Checkout(timeout_s=3, methods=["card", "cash"])) == 2
    assert writer.put("feature-flags", Flags(new_search=True)) == 1
    for _ in range(2):
        other, other_checkout, other_flags = instance(options, name, stack)
        other.load()
        assert (other_checkout.value.timeout_s, other_checkout.version) == (3, 2)
        assert other_flags.value.new_search
    poll_until(store, lambda: (checkout.version, flags.version) == (2, 1))
    assert fold_topic(options, name)[b"checkout"].value == b'{"timeout_s":3.0,"methods":["card","cash"]}'
    writer.delete("checkout")
    poll_until(store, lambda: checkout.value == Checkout())
    assert checkout.version == 0


def test_watchers_are_told_old_and_new_once_it_is_in_force(
    options: dict[str, Any], name: str, writer: ConfigWriter, stack: ExitStack
) -> None:
    store, checkout, flags = instance(options, name, stack)
    told: list[Any] = []
    checkout.watch(lambda old, new: told.append((old.timeout_s, new.timeout_s, checkout.value is new)))
    end = flags.watch(lambda old, new: told.append("flags"))
    writer.put("checkout", {"timeout_s": 2})
    store.load()
    assert told == [(5, 2, True)]
    end()
    writer.put("feature-flags", Flags(new_search=True))
    writer.put("checkout", {"timeout_s": 2})
    writer.put("checkout", {"timeout_s": 4})
    poll_until(store, lambda: (checkout.version, flags.value.new_search) == (3, True))
    assert told == [(5, 2, True), (2, 4, True)], "what did not change is not told"


def test_a_watcher_that_raises_keeps_nothing_from_the_others(
    options: dict[str, Any], name: str, writer: ConfigWriter, stack: ExitStack
) -> None:
    store, checkout, _ = instance(options, name, stack)
    told = []
    checkout.watch(lambda old, new: 1 / 0)
    checkout.watch(lambda old, new: told.append(new.timeout_s))
    writer.put("checkout", {"timeout_s": 2})
    with pytest.raises(ZeroDivisionError):
        store.load()
    assert (checkout.value.timeout_s, told) == (2, [])
    store.load()
    assert told == [2]


@pytest.mark.parametrize("bad", [b'{"timeout_s":-1}', b"null", b""], ids=repr)
def test_a_value_that_does_not_fit_is_quarantined_and_the_last_good_one_stays(
    options: dict[str, Any],
    name: str,
    writer: ConfigWriter,
    stack: ExitStack,
    caplog: pytest.LogCaptureFixture,
    bad: bytes,
) -> None:
    store, checkout, _ = instance(options, name, stack)
    writer.put("checkout", {"timeout_s": 2})
    store.load()
    told: list[Any] = []
    checkout.watch(lambda old, new: told.append(new))
    writer.put("checkout", {"timeout_s": 3})
    write_raw(options, name, b"checkout", bad)
    poll_until(store, lambda: checkout.quarantined is not None)
    assert checkout.quarantined is not None
    assert (checkout.value.timeout_s, checkout.version, checkout.quarantined.value) == (3, 2, bad)
    assert [each.timeout_s for each in told] == [3]
    assert "does not fit Checkout, so version 2 stays in force" in caplog.text
    writer.put("checkout", {"timeout_s": 4})
    poll_until(store, lambda: checkout.value.timeout_s == 4)
    assert checkout.quarantined is None


def test_the_last_good_value_outlives_a_restart_even_when_the_topic_has_lost_it(
    options: dict[str, Any], name: str, writer: ConfigWriter, stack: ExitStack
) -> None:
    """Compaction keeps the bad one only. A service with an older model meets a value of a newer one."""

    class Strict(Checkout):
        timeout_s: float = Field(default=5, gt=0, lt=10)

    writer.put("checkout", {"timeout_s": 2})
    delete_records(options["bootstrap.servers"], name)  # as compaction does, once the next record is there
    writer.put("checkout", {"timeout_s": 60})
    store = stack.enter_context(ConfigStore(options, name))
    checkout = store.setting("checkout", Strict())
    store.load()
    assert (checkout.value.timeout_s, checkout.version) == (2, 1)
    assert checkout.quarantined is not None
    assert checkout.quarantined.version == 2
    assert "less than 10" in checkout.quarantined.reason


def test_what_does_not_fit_is_not_written(options: dict[str, Any], name: str, writer: ConfigWriter) -> None:
    for bad in ({"timeout_s": -1}, {"methods": 7}, Checkout.model_construct(timeout_s=-1), {"timeout_s": float("nan")}):
        with pytest.raises(ValueRefused, match="setting 'checkout'"):
            writer.put("checkout", bad)
    with pytest.raises(ValueRefused, match="would not come back as it was"):
        writer.put("secret", Secret(password=SecretStr("hidden")))
    with pytest.raises(ConfigError, match=r"'other' has no model.*\n.*checkout, feature-flags"):
        writer.put("other", {})
    assert writer.version("checkout") == 0
    assert fold_topic(options, name) == {}


def test_versions_are_kept_and_rolled_back_to(options: dict[str, Any], name: str, writer: ConfigWriter) -> None:
    writer.put("checkout", {"timeout_s": 2}, by="ann")
    writer.put("feature-flags", {"new_search": True})
    writer.put("checkout", {"timeout_s": 3}, by="bob")
    writer.delete("checkout")
    assert writer.rollback("checkout", 1, by="cleo") == 4
    versions = writer.versions("checkout")
    assert [(each.version, each.by, each.value and orjson.loads(each.value)["timeout_s"]) for each in versions] == [
        *((1, "ann", 2), (2, "bob", 3), (3, "", None), (4, "cleo", 2))
    ]
    assert versions == sorted(versions, key=lambda each: each.at)
    assert orjson.loads(fold_topic(options, name)[b"checkout"].value)["timeout_s"] == 2
    assert writer.rollback("checkout", 3) == 5
    assert b"checkout" not in fold_topic(options, name)
    with pytest.raises(ValueRefused, match=r"no version 9 in its history\n.*1, 2, 3, 4, 5"):
        writer.rollback("checkout", 9)
    with pytest.raises(VersionConflict, match="has version 5, not 4"):
        writer.put("checkout", {}, expected=4)


def test_a_version_that_no_longer_fits_is_not_rolled_back_to(
    options: dict[str, Any], name: str, writer: ConfigWriter
) -> None:
    class Narrow(BaseModel):
        timeout_s: float = Field(lt=3)

    writer.put("checkout", {"timeout_s": 5})
    writer.put("checkout", {"timeout_s": 1})
    with ConfigWriter(options, name, {"checkout": Narrow}) as newer:
        with pytest.raises(ValueRefused, match="version 1 does not fit"):
            newer.rollback("checkout", 1)
        assert newer.put("checkout", {"timeout_s": 2}) == 3, "versions go on after a restart"


def test_topic_and_history_change_together(options: dict[str, Any], name: str, writer: ConfigWriter) -> None:
    writer.put("checkout", {"timeout_s": 2})
    with ConfigWriter(options, name, MODELS) as second:
        second.put("checkout", {"timeout_s": 3}, expected=1)
        with pytest.raises(FencedError):
            writer.put("checkout", {"timeout_s": 4}, expected=1)
        assert [each.version for each in second.versions("checkout")] == [1, 2]
    assert orjson.loads(fold_topic(options, name)[b"checkout"].value)["timeout_s"] == 3


def test_the_history_is_a_topic_that_forgets_nothing(options: dict[str, Any], name: str, writer: ConfigWriter) -> None:
    kept = {"cleanup.policy": "delete", "retention.ms": "-1"}
    assert TopicAdmin(BrokerAdmin(options)).drift([TopicSpecification(f"{name}.history", 2, 1, kept)]) == []
    other = f"{name}-other"
    wrong = [(other, "compact"), (f"{other}.history", "compact")]
    for each, how in wrong:
        make_topic(options, each, 1, how)
    with pytest.raises(TopicRefused, match="loses its history"):
        ConfigWriter(options, other, MODELS)


def test_a_setting_is_declared_once(options: dict[str, Any], name: str, writer: ConfigWriter, stack: ExitStack) -> None:
    store, _, _ = instance(options, name, stack)
    with pytest.raises(ConfigError, match="declared twice"):
        store.setting("checkout", Checkout())
