"""What docs/topics-toolkit.md says of Kafka itself, its defaults and its metrics' names, is what Kafka says."""

from __future__ import annotations

import re
import zipfile
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, ResourceType

from cdc.lab.stack import KafkaBroker
from cdc.lab.stack.jars import fetch_jars
from tests.architecture.pages import page
from tests.support.other_topics import OtherTopic

PAGE: Final = page("docs/topics-toolkit.md")
WORDS: Final = {
    "a day": 86_400_000,
    "7 days": 604_800_000,
    "15 s": 15_000,
    "128 MiB for all threads together": 134_217_728,
    "unlimited": float("inf"),
}


def defaults(bootstrap: str, resource: ConfigResource) -> dict[str, str]:
    """What Kafka sets where nobody sets anything."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (future,) = admin.describe_configs([resource]).values()
    return {
        name: str(each.value)
        for name, entry in future.result(30).items()
        for each in (entry, *entry.synonyms.values())
        if each.source == ConfigSource.DEFAULT_CONFIG.value
    }


def test_kafkas_defaults(cleaning: KafkaBroker) -> None:
    topic = OtherTopic(cleaning.bootstrap).name  # it sets nothing but the policy
    found = {
        **defaults(cleaning.bootstrap, ConfigResource(ResourceType.BROKER, "1")),
        **defaults(cleaning.bootstrap, ConfigResource(ResourceType.TOPIC, topic)),
    }
    told = {row[0].split("`")[1]: row[1].strip("`") for row in PAGE.rows("setting")}
    assert len(told) == 10
    for name, words in told.items():
        value = found["log.cleanup.policy" if name == "cleanup.policy" else name]
        expected = WORDS.get(words, words)
        if expected == float("inf"):
            assert float(value) >= 9e18, name
        elif isinstance(expected, int) or re.fullmatch(r"[\d.]+", words):
            assert float(value) == float(expected), name
        else:
            assert value == words, name


@pytest.mark.parametrize("which", ["LogCleaner", "LogCleanerManager"])
def test_names_of_metrics(which: str) -> None:
    """A class holds the names of its metrics as text."""
    (block,) = [each for each in PAGE.fences("") if "kafka.log:type" in each]
    told = re.search(rf"type={which} +((?:[\w-]+,\s+)*[\w-]+)", block)
    assert told is not None
    names = re.findall(r"[\w-]+", told[1])
    code = compiled(f"org/apache/kafka/storage/internals/log/{which}.class")
    assert [name for name in names if name.encode() not in code] == []
    for invented in ("cleanable-dirty-ratio", "max-clean-time-ms"):
        assert invented.encode() not in code


def compiled(name: str) -> bytes:
    """A class of the broker."""
    for jar in fetch_jars().glob("kafka*.jar"):
        with zipfile.ZipFile(jar) as archive:
            if name in archive.namelist():
                return archive.read(name)
    raise AssertionError(f"no {name} in the broker's jars")
