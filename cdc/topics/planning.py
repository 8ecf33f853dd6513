"""Plans changes of real topics: compares their settings with the configuration's, and keeps the changes safe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cdc.base.config import Config
from cdc.contract.naming import progress_topic, schemas_topic
from cdc.kafka.publish.topics import bookkeeping_settings, history_settings, state_settings
from cdc.topics.cluster import Cluster, PartitionPlace
from cdc.topics.plan import SettingChange, TopicStanding, changes, check_wishes, general_settings
from cdc.topics.scan import Begin, read_keys

_HISTORY = ".history"
_TABLE_PARTS = 2
"""A topic's name has two parts after the prefix, schema and table; neither contains a dot there."""


def plan(
    cluster: Cluster,
    places: Sequence[PartitionPlace],
    settings: Mapping[str, str],
    *,
    config: Config | None,
    overrides: Mapping[str, str],
    begin: Begin,
) -> list[SettingChange]:
    """Returns the settings of one topic that should change.

    Args:
        cluster: the cluster that has the topic.
        places: the topic's partitions.
        settings: the topic's settings, as Kafka writes them.
        config: says what the bridge's own topics should have; None for topics of other programs.
        overrides: settings that are wanted instead.
        begin: told of the progress if records have to be read.

    Raises:
        ConfigError: a broker cannot accept an override.
        TopicRefused: we may not read the topic.
        TopicUnavailable: no broker answers.
    """
    topic = places[0].topic
    found = {**settings, "partitions": str(len(places))}
    check_wishes(found, overrides)
    replicas = min(len(each.replicas) for each in places)
    ours = None if config is None else configured_settings(config, topic)
    wanted = {**(general_settings(TopicStanding(topic, found, replicas)) if ours is None else ours), **overrides}
    keyless: int | None = None
    if "compact" not in settings.get("cleanup.policy", "") and wanted["cleanup.policy"] == "compact":
        # A compacted topic refuses records without a key, and the cleaner removes those that are there
        keyless = sum(each.key is None for each in read_keys(cluster, places, newest=None, begin=begin))
    is_state = ours is not None or "cleanup.policy" in overrides
    return changes(TopicStanding(topic, found, replicas, keyless, is_state), wanted)


def configured_settings(config: Config, topic: str) -> dict[str, str] | None:
    """Returns the settings that section ``topics`` gives this topic; None if it is not one of the bridge's topics."""
    topics = config.topics
    if topic in (progress_topic(config.name), schemas_topic(config.name)):
        return {**bookkeeping_settings(topics), "partitions": "1"}
    partitions = {"partitions": str(topics.partitions)}
    if _is_state(config, topic):
        return {**state_settings(topics), **partitions}
    if topic.endswith(_HISTORY) and _is_state(config, topic.removesuffix(_HISTORY)):
        return {**history_settings(topics), **partitions}
    return None


def _is_state(config: Config, topic: str) -> bool:
    if topic in config.topics.names.values():
        return True
    rest = topic.removeprefix(f"{config.name}.")
    return rest != topic and len(rest.split(".")) == _TABLE_PARTS
