"""An admin client that can say why a connection to the brokers fails. Shared by ``publish`` and ``replay``.

librdkafka reports the reason for a failed connection only to ``error_cb``, between calls, and keeps trying to connect;
the call that waits for the connection finally says "timed out". So this module repeats its first question with ever
longer timeouts, and gives up as soon as it hears a reason that no retry will change.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Any, Final

from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ClusterMetadata, ListOffsetsResultInfo, OffsetSpec

from cdc.base.broker_log import BROKER_LOG, BROKERS_AWAY
from cdc.base.errors import ConfigError, TopicRefused, TopicUnavailable
from cdc.base.long_wait import told
from cdc.kafka.client_threads import require_threads
from cdc.kafka.leaders import LeaderEpochs, cut_off_brokers

CONNECTING: Final[Mapping[str, Any]] = {
    "log.connection.close": False,
    # After its first connection, a client waits for half of this time before it connects to the broker that it was
    # told about. With the default of 100 ms, this wait was most of the time until the first answer. After each failure
    # the client doubles it, up to ten seconds.
    "reconnect.backoff.ms": 20,
    # A broker that is cut off from the others, and still reached by us, goes on as a leader that it is not any more.
    # It answers, so only this question tells where the new leader is. The default is five minutes.
    "topic.metadata.refresh.interval.ms": 10_000,
}
"""Connection settings of every client, unless the configuration says otherwise."""

_CONNECTED_WITHIN_S: Final = 1.0
_FIRST_PATIENCE_S: Final = 0.25
_REFUSED_AFTER_BACKOFFS: Final = 35
"""How many times ``reconnect.backoff.ms`` pass before "all brokers down" is believed. A name may have several addresses
(``localhost`` is ::1 first): the client tries one after the other and reports all brokers down in between. It doubles
the pause each time, so within 35 pauses it has tried five addresses."""
_SAYS_WHY: Final = {KafkaError._TRANSPORT, KafkaError._RESOLVE, KafkaError._TIMED_OUT}
_ASK_AGAIN: Final = {
    KafkaError._TRANSPORT,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,  # a leader that is new, and does not know yet what was confirmed (KIP-207)
    KafkaError._NOENT,
}
_LEADER_WITHIN_S: Final = 5.0
_LEADER_POLL_S: Final = 0.05
_FEW_TOPICS: Final = 20
"""So many topics are asked for one by one. Of more, one answer about all topics is cheaper."""
_OVERLOOKED_AFTER_S: Final = 0.1
"""When an offset request has waited this long, a metadata request wakes the client. It looks up the partitions' leaders
first, and right after it has connected it misses the answer once in thirty times. It would look again only after one to
three seconds, or when any other metadata arrives."""
_LATEST: Final = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the client gives it no types
_ONE_BROKER_FOR_S: Final = 60.0
"""How long a cluster with one broker is taken to have no other. One broker alone is always the leader."""
_AUTHENTICATION: Final = {KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED}


def refused_connection(error: KafkaError) -> TopicRefused | None:
    """Returns why the brokers refuse this client, or this client the brokers; None when a retry may help."""
    if error.code() in _AUTHENTICATION:
        return TopicRefused(
            f"Kafka refused the connection: {error.str()}",
            remedy="correct sasl.mechanism and sasl.username under kafka.options, and kafka.password or "
            "kafka.password_file",
        )
    if error.code() == KafkaError._SSL:  # a connection that merely broke during the handshake is _TRANSPORT
        return TopicRefused(
            f"no trusted connection to Kafka: {error.str()}",
            remedy="set ssl.ca.location under kafka.options to the authority that signed the brokers' certificates, "
            "and kafka.bootstrap to a name that they carry",
        )
    return None


def bad_option(error: KafkaException) -> ConfigError:
    """The error for an option or a value that librdkafka does not know."""
    return ConfigError(
        f"kafka.options: {error.args[0].str()}", remedy="see librdkafka's CONFIGURATION.md for names and values"
    )


def connect(producer: Producer) -> None:
    """Wait up to a second for a broker's first answer. If none comes, the producer's next call says why.

    A producer needs an id from the brokers before it sends anything (KIP-98, KIP-360). It asks for the id at once and,
    if no connection is up yet, again only half a second later; waiting here saves that half second.
    """
    with suppress(KafkaException):
        producer.list_topics(timeout=_CONNECTED_WITHIN_S)


class BrokerAdmin(AdminClient):
    """An admin client. Use one for several questions: each client opens connections of its own.

    Args:
        options: librdkafka settings from the configuration, ``bootstrap.servers`` among them.

    Attributes:
        options: the settings it was made with.

    Raises:
        ConfigError: librdkafka knows no such option or value.
        RuntimeError: this process gets no more threads.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = options
        self._reports = _Reports()
        self._epochs: LeaderEpochs | None = None
        self._one_broker_until = 0.0
        ours: dict[str, Any] = {
            **CONNECTING,
            **options,
            **cut_off_brokers(options).bootstrap(),
            "error_cb": self._reports.take,
        }
        self._refused_after_s = _REFUSED_AFTER_BACKOFFS * float(ours["reconnect.backoff.ms"]) / 1000
        require_threads()
        try:
            super().__init__(ours, logger=BROKER_LOG)
        except KafkaException as error:
            raise bad_option(error) from error

    def metadata(self, topic: str | None = None, *, timeout_s: float) -> ClusterMetadata:
        """Returns the brokers, and one topic or all that we may see.

        If all brokers refuse the connection and none has ever answered this client, the call fails without waiting for
        ``timeout_s``: a person learns it at once, and a daemon tries again by itself. Brokers that have answered before
        may be restarting, so the call waits for them.

        Raises:
            TopicRefused: the brokers reject our credentials, or show no certificate that we trust.
            TopicUnavailable: no broker answers; the message has the reason, if the client reported one.
        """
        whom = f"Kafka at {self.options.get('bootstrap.servers')}"
        with told(whom, "to answer", f"up to {timeout_s:g} s"):
            return self._metadata(topic, whom, timeout_s)

    def _metadata(self, topic: str | None, whom: str, timeout_s: float) -> ClusterMetadata:
        began, patience_s = time.monotonic(), _FIRST_PATIENCE_S
        while True:
            try:
                found = self.list_topics(topic, timeout=patience_s)
            except KafkaException as error:
                failure: KafkaError = error.args[0]
                self.poll(0)
                if self._reports.refusal is not None:
                    raise self._reports.refusal from error
                waited_s = time.monotonic() - began
                is_hopeless = self._reports.is_hopeless and waited_s >= self._refused_after_s
                if waited_s >= timeout_s or is_hopeless or failure.code() not in _SAYS_WHY:
                    raise TopicUnavailable(
                        f"cannot reach {whom}: {self._reports.newest or failure.str()}",
                        remedy=BROKERS_AWAY,
                    ) from error
                patience_s = max(min(2 * patience_s, timeout_s - waited_s), _FIRST_PATIENCE_S)
            else:
                self.poll(0)  # a broker answered: take the reports of earlier failures now, so that forget() drops them
                self._reports.forget()
                BROKER_LOG.answered()
                self._count_brokers(found)
                return found

    def offsets(
        self,
        partitions: Iterable[tuple[str, int]],
        spec: OffsetSpec,
        *,
        timeout_s: float,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[tuple[str, int], int | KafkaError]:
        """Returns the offset of each partition, or the error that Kafka reports instead.

        A topic that was just created has no leader for a moment, a connection may break before the answer, and a broker
        may answer that does not lead the partition any more: such partitions are asked again for five seconds. So
        "latest" lies past everything that was confirmed before this call (``leaders``).

        Args:
            partitions: topic and number of each; the topics exist.
            spec: which offset to ask for.
            timeout_s: the timeout of each request.
            isolation: whether "latest" means the high watermark or the last stable offset.

        Raises:
            TopicUnavailable: no broker answers.
            TopicRefused: the brokers refuse the connection.
        """
        found: dict[tuple[str, int], int | KafkaError] = {}
        asked = {TopicPartition(*each): spec for each in partitions}
        deadline = time.monotonic() + _LEADER_WITHIN_S
        while asked:
            answers = self.list_offsets(asked, isolation_level=isolation, request_timeout=timeout_s)
            epochs = self._newest_epochs(asked, timeout_s) if spec is _LATEST else {}
            if wait(answers.values(), _OVERLOOKED_AFTER_S).not_done:
                self.metadata(next(iter(asked)).topic, timeout_s=timeout_s)
            again: dict[TopicPartition, OffsetSpec] = {}
            for place, future in answers.items():
                answer = offset_of(future, epochs.get((place.topic, place.partition), 0))
                found[place.topic, place.partition] = answer
                if isinstance(answer, KafkaError) and answer.code() in _ASK_AGAIN and time.monotonic() < deadline:
                    again[TopicPartition(place.topic, place.partition)] = spec
            asked = again
            if asked:
                time.sleep(_LEADER_POLL_S)
            # Without fresh metadata, the client would keep using its old answer for seconds
            topics = {place.topic for place in asked}
            for topic in topics if len(topics) <= _FEW_TOPICS else (None,):
                self.metadata(topic, timeout_s=timeout_s)
        return found

    def _count_brokers(self, found: ClusterMetadata) -> None:
        self._one_broker_until = time.monotonic() + _ONE_BROKER_FOR_S
        if self._epochs is None and len(found.brokers) > 1:
            addresses = {number: (str(each.host), each.port) for number, each in found.brokers.items()}
            self._epochs = LeaderEpochs(addresses, self.options)

    def _newest_epochs(
        self, places: Iterable[TopicPartition], timeout_s: float
    ) -> Mapping[tuple[str, int], int | None]:
        """Returns leader epochs as ``LeaderEpochs.newest`` does; nothing where nobody but the leader can answer."""
        asked = [(place.topic, place.partition) for place in places]
        if self._epochs is None and time.monotonic() >= self._one_broker_until:
            self.metadata(asked[0][0], timeout_s=timeout_s)
        return {} if self._epochs is None else self._epochs.newest(asked) or {}


def offset_of(future: Future[ListOffsetsResultInfo], epoch: int | None) -> int | KafkaError:
    """Returns the answer about one partition, or the error that came instead.

    When one of the brokers that have to be asked does not answer, librdkafka reports no error for its partitions, but
    ``OFFSET_INVALID``: as an offset, that would mean that all records are gone.

    Args:
        future: the answer.
        epoch: the answer of a leader with an older epoch does not count; None if nobody knows the epoch.
    """
    try:
        answer = future.result()
    except KafkaException as error:
        failure: KafkaError = error.args[0]
        return failure
    if answer.offset == OFFSET_INVALID:
        return KafkaError(KafkaError._TRANSPORT, "the connection broke before the offset was answered")
    if epoch is None:
        return KafkaError(KafkaError.LEADER_NOT_AVAILABLE, "too few of the brokers that keep it say which one leads it")
    if answer.leader_epoch is not None and answer.leader_epoch < epoch:
        return KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION, "the broker that answers does not lead it any more")
    return int(answer.offset)


class _Reports:
    """What ``error_cb`` was told.

    A class of its own, because a client whose callback is its own method refers to itself and is freed late.
    """

    def __init__(self) -> None:
        self.refusal: TopicRefused | None = None
        self.newest = ""
        self._are_all_down = False
        self._has_answered = False

    def take(self, error: KafkaError) -> None:
        self.refusal = self.refusal or refused_connection(error)
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._are_all_down = True
        else:
            self.newest = error.str()

    @property
    def is_hopeless(self) -> bool:
        """Whether no broker has ever answered and every known broker was tried."""
        return self._are_all_down and not self._has_answered

    def forget(self) -> None:
        self.refusal, self.newest, self._has_answered = None, "", True
