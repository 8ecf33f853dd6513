"""How a client of the world finds its cluster, and what brokers tell of their topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import BrokerMetadata, ClusterMetadata, PartitionMetadata, TopicMetadata

from tests.world.kafka import BrokerTopic, KafkaCluster, Session

NODE: Final = 1
_LISTENING: Final[dict[str, KafkaCluster]] = {}


def listen(cluster: KafkaCluster) -> None:
    """Let clients find a cluster at its address, where another one may have been before."""
    _LISTENING[cluster.address] = cluster


def cluster_at(conf: Mapping[str, Any]) -> KafkaCluster:
    """Returns the cluster at ``bootstrap.servers``."""
    return _LISTENING[conf["bootstrap.servers"]]


def asked_metadata(session: Session, topic: str | None, timeout_s: float) -> ClusterMetadata:
    """Ask a broker for one topic or for all, as each client's ``list_topics`` does.

    Raises:
        KafkaException: no broker answers.
    """
    cluster = session.cluster
    cluster.turns.turn()
    if not cluster.answers and not cluster.wait(lambda: cluster.answers, timeout_s):
        code = KafkaError._TRANSPORT if cluster.is_away else KafkaError._TIMED_OUT
        raise KafkaException(KafkaError(code, "Failed to get metadata"))
    found = ClusterMetadata()
    found.controller_id = found.orig_broker_id = NODE
    found.brokers[NODE] = BrokerMetadata()
    found.brokers[NODE].id = NODE
    for name in cluster.topics if topic is None else [topic]:
        found.topics[name] = _told(name, cluster.topic(name))
    cluster.turns.turn()
    return found


def _told(name: str, topic: BrokerTopic | None) -> TopicMetadata:
    told = TopicMetadata()
    told.topic = name
    if topic is None:
        told.error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        return told
    for log in topic.partitions:
        each = told.partitions[log.number] = PartitionMetadata()
        each.id, each.leader, each.replicas, each.isrs = log.number, NODE, [NODE], [NODE]
    return told
