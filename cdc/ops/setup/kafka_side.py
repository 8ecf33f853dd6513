"""A look at Kafka: how many brokers, of which version, and which topics of this name are there already."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from cdc.base.config import Config
from cdc.base.errors import CdcError
from cdc.contract.naming import progress_topic
from cdc.kafka.brokers import BrokerAdmin
from cdc.topics.wire import AnswerReader, BrokerWire

_TIMEOUT_S: Final = 15.0
_API_VERSIONS: Final = 18
_PRODUCE: Final = 0
_RELEASES: Final[Mapping[int, str]] = {13: "4.1", 12: "4.0", 11: "3.8", 10: "3.7", 9: "2.8", 8: "2.4", 7: "2.1"}
"""Version of Produce → the release that brought it: https://kafka.apache.org/protocol#The_Messages_Produce"""

_COPIES: Final = 3
"""Of each topic where there are brokers for them: one may be down, and records are still in two places."""


@dataclass(frozen=True, slots=True)
class SeenKafka:
    """The cluster.

    Attributes:
        brokers: how many there are.
        release: the oldest release that the broker may be of; empty when it does not tell us.
        topics: how many topics we may see.
        ours: topics that begin with the name already.
    """

    brokers: int
    release: str
    topics: int
    ours: tuple[str, ...]
    has_progress: bool

    @property
    def replication_factor(self) -> int:
        """As many copies as suit the cluster."""
        return min(_COPIES, self.brokers)

    @property
    def min_insync_replicas(self) -> int:
        """So that a broker may fail where there are copies to spare."""
        return 2 if self.replication_factor == _COPIES else 1


def look_at_kafka(config: Config) -> SeenKafka:
    """Ask the brokers.

    Raises:
        TopicUnavailable: none answers.
        TopicRefused: they do not let us in.
        ConfigError: librdkafka knows no such option.
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
    """Brokers do not tell their release, but the versions of requests that they take; empty when not even that."""
    # A way in that only the client library knows (Kerberos, OAuth) is not worth stopping for.
    with contextlib.suppress(CdcError), BrokerWire(host, port, options) as wire:
        answer = AnswerReader(wire.ask(_API_VERSIONS, 0, b""))
        _, count = answer.take(">hi")
        newest = {api: greatest for api, _, greatest in (answer.take(">hhh") for _ in range(count))}
        return next((release for version, release in _RELEASES.items() if newest.get(_PRODUCE, 0) >= version), "")
    return ""
