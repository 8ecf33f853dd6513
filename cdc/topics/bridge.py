"""What a bridge records about its topics: the definitions that it wrote them with, and how far it has published."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from cdc.base.config import Config
from cdc.base.errors import TopicRefused
from cdc.base.lsn import LSN, ZERO
from cdc.contract.naming import progress_topic, schemas_topic
from cdc.contract.progress import stream_key
from cdc.contract.record import Progress, TableSchema
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.replay.backfills import read_published
from cdc.kafka.replay.definitions import read_definitions
from cdc.kafka.replay.horizon import published_at_most
from cdc.topics.foreign import ForeignRecords


class ConfiguredBridge:
    """The bridge that a configuration describes.

    Args:
        config: the bridge's configuration.
        admin: reads the bridge's own topics.
        definitions: by topic, its definitions.
    """

    def __init__(self, config: Config, admin: BrokerAdmin, definitions: Mapping[str, Collection[TableSchema]]) -> None:
        self._config = config
        self._admin = admin
        self._definitions = definitions

    @classmethod
    def of(cls, config: Config) -> ConfiguredBridge | None:
        """Reads the bridge's definitions. Returns None if it has not begun: there is nothing to compare records with.

        Raises:
            TopicUnavailable: no broker answers.
        """
        admin, found = BrokerAdmin(config.kafka.client_options()), dict[str, list[TableSchema]]()
        try:
            for each in read_definitions(admin, schemas_topic(config.name)):
                found.setdefault(each.topic, []).append(each)
        except TopicRefused:
            return None
        return cls(config, admin, found)

    def records_of(self, topic: str) -> ForeignRecords | None:
        """Returns what collects foreign records of a topic; None if the topic does not belong to a table."""
        if topic not in self._definitions:
            return None
        progress = self._progress()
        fingerprints = {each.fingerprint for each in self._definitions[topic]}
        return ForeignRecords(fingerprints, ZERO if progress is None else progress.lsn)

    def written(self, topic: str) -> Mapping[int, str]:
        """Returns the format of each schema with which values of a topic were written, by its id."""
        return {each.schema_id: each.format for known in self._definitions.get(topic, ()) for each in known.written}

    def published_by_now(self) -> LSN | None:
        """Returns an LSN greater than that of any record written until now; None when that is not known."""
        progress = self._progress()
        if progress is None or (progress.lead is not None and progress.lead.is_open):
            return None
        return published_at_most(progress)

    def _progress(self) -> Progress | None:
        key = stream_key(self._config.source.slot)
        return read_published(self._admin, progress_topic(self._config.name), key).stream
