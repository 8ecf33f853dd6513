"""Looks at Kafka: how many brokers there are, which version they have, and which topics of this name already exist."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from cdc.base.config import Config
from cdc.base.errors import CdcError
from cdc.contract.naming import progress_topic
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.wire import AnswerReader, BrokerWire

_TIMEOUT_S: Final = 15.0
_API_VERSIONS: Final = 18
_PRODUCE: Final = 0
_RELEASES: Final[Mapping[int, str]] = {13: "4.1", 12: "4.0", 11: "3.8", 10: "3.7", 9: "2.8", 8: "2.4", 7: "2.1"}
"""Kafka releases by the version of Produce that they introduced: see
https://kafka.apache.org/protocol#The_Messages_Produce"""

_COPIES: Final = 3
"""Copies of each topic, if there are enough brokers: with one broker down, each record still has two copies."""


@dataclass(frozen=True, slots=True)
class SeenKafka:
    """The state of the cluster.

    Attributes:
        brokers: the number of brokers.
        release: the oldest release that the broker can have; empty if it is unknown.
        topics: the number of topics that the user may see.
        ours: existing topics that begin with the configuration's name.
        has_progress: whether a bridge of this name has published before.
    """

    brokers: int
    release: str
    topics: int
    ours: tuple[str, ...]
    has_progress: bool

    @property
    def replication_factor(self) -> int:
        """The number of copies that suits the cluster."""
        return min(_COPIES, self.brokers)

    @property
    def min_insync_replicas(self) -> int:
        """Two if there are three copies, so that one broker may fail; else one."""
        return 2 if self.replication_factor == _COPIES else 1


def look_at_kafka(config: Config) -> SeenKafka:
    """Ask the brokers about the cluster.

    Raises:
        TopicUnavailable: no broker answers.
        TopicRefused: the brokers refuse the user.
        ConfigError: librdkafka does not know an option.
    """
    options = config.kafka.client_options()
    metadata = BrokerAdmin(options).metadata(timeout_s=_TIMEOUT_S)
    broker = metadata.brokers[min(metadata.brokers)]
    names = sorted(name for name in metadata.topics if not name.startswith("__"))
    return SeenKafka(
        brokers=len(metadata.brokers),
        release=_release(str(broker.host), broker.port, options),
        topics=len(names),
        ours=tuple(name for name in names if name.startswith(f"{config.name}.")),
        has_progress=progress_topic(config.name) in metadata.topics,
    )


def _release(host: str, port: int, options: Mapping[str, Any]) -> str:
    """Returns the release, found from the request versions that a broker accepts; empty if it cannot be found."""
    # Only the client library can authenticate with Kerberos or OAuth. The release is not worth an error then.
    with contextlib.suppress(CdcError), BrokerWire(host, port, options) as wire:
        answer = AnswerReader(wire.ask(_API_VERSIONS, 0, b""))
        _, count = answer.take(">hi")
        newest = {api: greatest for api, _, greatest in (answer.take(">hhh") for _ in range(count))}
        return next((release for version, release in _RELEASES.items() if newest.get(_PRODUCE, 0) >= version), "")
    return ""
