"""A library for services that keep state in compacted topics: write it safely, read it everywhere, survive crashes.

``docs/state.md`` explains each of these names with an example.
"""

from cdc.base.config import TopicsConfig
from cdc.base.errors import (
    CdcError,
    ConfigError,
    FencedError,
    TopicRefused,
    TopicUnavailable,
    ValueRefused,
    VersionConflict,
)
from cdc.contract.ports import StoredRecord
from cdc.state.bloom import BloomFilter, BloomMeasurement, BloomSize, bloom_size, measure_bloom
from cdc.state.changelog import ChangelogStore, PartitionState
from cdc.state.configuration import ConfigStore, Quarantined, Setting
from cdc.state.configuration_history import ConfigVersion
from cdc.state.configuration_writer import ConfigWriter
from cdc.state.deduplication import Deduplicator, DuplicateVerdict, HighWater
from cdc.state.entries import ABSENT, Change, Entry
from cdc.state.events import Difference, EventSourced
from cdc.state.producer import StateProducer
from cdc.state.reader import StateReader

__all__ = [
    "ABSENT",
    "BloomFilter",
    "BloomMeasurement",
    "BloomSize",
    "CdcError",
    "Change",
    "ChangelogStore",
    "ConfigError",
    "ConfigStore",
    "ConfigVersion",
    "ConfigWriter",
    "Deduplicator",
    "Difference",
    "DuplicateVerdict",
    "Entry",
    "EventSourced",
    "FencedError",
    "HighWater",
    "PartitionState",
    "Quarantined",
    "Setting",
    "StateProducer",
    "StateReader",
    "StoredRecord",
    "TopicRefused",
    "TopicUnavailable",
    "TopicsConfig",
    "ValueRefused",
    "VersionConflict",
    "bloom_size",
    "measure_bloom",
]
