"""Kafka's door: an admin client that can say why the brokers do not let us in. Shared by ``publish`` and ``replay``.

librdkafka tells the reason of a failed connection only to ``error_cb``, between calls, and goes on connecting; the call
that waits for it says "timed out" at last. So the first question is asked again and again with ever longer patience,
and a reason that no retry will change ends it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import wait
from contextlib import suppress
from typing import Any, Final

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ClusterMetadata, OffsetSpec

from cdc.base.broker_log import BROKER_LOG, BROKERS_AWAY
from cdc.base.errors import ConfigError, TopicRefused, TopicUnavailable
from cdc.base.long_wait import told

CONNECTING: Final[Mapping[str, Any]] = {
    "log.connection.close": False,
    # After its first connection, a client waits for half of this before it opens the next one, to the broker that it
    # was told of: with the default of 100 ms that is what most of the first answer's time went into. After a failure
    # it is doubled each time, up to ten seconds.
    "reconnect.backoff.ms": 20,
}
"""How every client connects, unless the configuration says otherwise."""

_CONNECTED_WITHIN_S: Final = 1.0
_FIRST_PATIENCE_S: Final = 0.25
_REFUSED_AFTER_BACKOFFS: Final = 35
"""A name may stand for several addresses. The client tries one after the other, and calls all brokers down in between:
``localhost`` is ::1 first. In so many times ``reconnect.backoff.ms``, which it doubles each time, it has tried five."""
_SAYS_WHY: Final = {KafkaError._TRANSPORT, KafkaError._RESOLVE, KafkaError._TIMED_OUT}
_NO_LEADER_YET: Final = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError._NOENT,
}
_LEADER_WITHIN_S: Final = 5.0
_LEADER_POLL_S: Final = 0.05
_OVERLOOKED_AFTER_S: Final = 0.1
"""The client looks up the partitions' leaders first. When it has just connected, it overlooks the answer in one of
thirty times, and looks again after one second or three, or when it is told anything else about topics."""
_AUTHENTICATION: Final = {KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED}


def refused_connection(error: KafkaError) -> TopicRefused | None:
    """Why the brokers will not have us, or we not them; None when a retry may help."""
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
    """librdkafka knows no such option or value."""
    return ConfigError(
        f"kafka.options: {error.args[0].str()}", remedy="see librdkafka's CONFIGURATION.md for names and values"
    )


def connect(producer: Producer) -> None:
    """Wait a moment for a broker's first answer; without one, what the producer does next says why.

    It needs a number from the brokers before it sends anything (KIP-98, KIP-360). It asks for that at once, and where
    no connection stands yet, again half a second later.
    """
    with suppress(KafkaException):
        producer.list_topics(timeout=_CONNECTED_WITHIN_S)


class BrokerAdmin(AdminClient):
    """An admin client. Whoever has several questions asks them through one: each costs connections of its own.

    Args:
        options: librdkafka settings from the configuration, ``bootstrap.servers`` among them.

    Attributes:
        options: the same.

    Raises:
        ConfigError: librdkafka knows no such option or value.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = options
        self._reports = _Reports()
        ours: dict[str, Any] = {**CONNECTING, **options, "error_cb": self._reports.take}
        self._refused_after_s = _REFUSED_AFTER_BACKOFFS * float(ours["reconnect.backoff.ms"]) / 1000
        try:
            super().__init__(ours, logger=BROKER_LOG)
        except KafkaException as error:
            raise bad_option(error) from error

    def metadata(self, topic: str | None = None, *, timeout_s: float) -> ClusterMetadata:
        """Brokers, and one topic or all that we may see.

        Where none has ever answered this client, and all refuse the connection, nobody waits for ``timeout_s``: a
        person is told at once, and a daemon tries again by itself. Brokers that have answered may be restarting.

        Raises:
            TopicRefused: the brokers will not let us in, or show no certificate that we trust.
            TopicUnavailable: none answers; with the reason, if one was told.
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
                self.poll(0)  # what was reported until now is over
                self._reports.forget()
                BROKER_LOG.answered()
                return found

    def offsets(
        self,
        partitions: Iterable[tuple[str, int]],
        spec: OffsetSpec,
        *,
        timeout_s: float,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[tuple[str, int], int | KafkaError]:
        """An offset by partition, or why there is none.

        A topic that was just made has no leader for a moment: then it is asked again.

        Args:
            partitions: topic and number, of topics that exist.
            spec: which offset.
            timeout_s: of each request.
            isolation: whose end is meant by the latest offset.

        Raises:
            TopicUnavailable: no broker answers.
            TopicRefused: the brokers will not let us in.
        """
        found: dict[tuple[str, int], int | KafkaError] = {}
        asked = {TopicPartition(*each): spec for each in partitions}
        deadline = time.monotonic() + _LEADER_WITHIN_S
        while asked:
            answers = self.list_offsets(asked, isolation_level=isolation, request_timeout=timeout_s)
            if wait(answers.values(), _OVERLOOKED_AFTER_S).not_done:
                self.metadata(next(iter(asked)).topic, timeout_s=timeout_s)
            again: dict[TopicPartition, OffsetSpec] = {}
            for place, future in answers.items():
                try:
                    found[place.topic, place.partition] = future.result().offset
                except KafkaException as error:
                    found[place.topic, place.partition] = error.args[0]
                    if error.args[0].code() in _NO_LEADER_YET and time.monotonic() < deadline:
                        again[TopicPartition(place.topic, place.partition)] = spec
            asked = again
            if asked:
                time.sleep(_LEADER_POLL_S)
            for topic in {place.topic for place in asked}:
                self.metadata(topic, timeout_s=timeout_s)  # the client would believe its older answer for seconds
        return found


class _Reports:
    """What ``error_cb`` was told. Not the client's own method: the client would then hold itself."""

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
        """No broker has ever answered, and each one that we know was tried."""
        return self._are_all_down and not self._has_answered

    def forget(self) -> None:
        self.refusal, self.newest, self._has_answered = None, "", True
