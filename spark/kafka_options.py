"""Translates one set of Kafka options for two clients, librdkafka and the Java client of Spark's connector."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cdc.contract.jobspec.deployment import KafkaSettings
from cdc.spark.errors import JobError

_SAME: Final = frozenset(
    {"bootstrap.servers", "security.protocol", "client.id", "ssl.endpoint.identification.algorithm"}
)
_LOGIN_MODULES: Final[Mapping[str, str]] = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_IN_BULK: Final[Mapping[str, str]] = {
    # A job reads whole partitions, but the client's defaults suit records that are handled one by one.
    "max.poll.records": "5000",
    "max.partition.fetch.bytes": str(8 * 1024 * 1024),
}
_PRODUCER_ONLY: Final = frozenset(
    {"compression.type", "linger.ms", "batch.size", "compression.codec", "queue.buffering.max.ms", "batch.num.messages"}
)
_CREDENTIALS: Final = frozenset({"sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password"})


def client_options(kafka: KafkaSettings) -> dict[str, Any]:
    """Returns the options for confluent_kafka's clients."""
    options: dict[str, Any] = dict(kafka.options)
    if kafka.password is not None:
        options["sasl.password"] = kafka.password.get_secret_value()
    return options


def connector_options(kafka: KafkaSettings) -> dict[str, str]:
    """Returns the options for Spark's connector: the Java client's names, each with the prefix ``kafka.``.

    Raises:
        JobError: an option has no counterpart. Without it the job might read another cluster, or read in clear text.
    """
    translated: dict[str, str] = {}
    unknown = []
    for name, value in kafka.options.items():
        if name in _SAME:
            translated[name] = value
        elif name == "ssl.ca.location":
            translated |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": value}
        elif name not in _PRODUCER_ONLY and name not in _CREDENTIALS:
            unknown.append(name)
    if unknown:
        raise JobError(
            f"kafka.options: {', '.join(sorted(unknown))} cannot be translated for Spark's Kafka client",
            remedy="leave them out for this command, or give it a configuration of its own",
        )
    translated |= {**_IN_BULK, **_sasl(kafka)}
    return {f"kafka.{name}": value for name, value in translated.items()}


def _sasl(kafka: KafkaSettings) -> dict[str, str]:
    mechanism = kafka.options.get("sasl.mechanism") or kafka.options.get("sasl.mechanisms")
    if mechanism is None:
        return {}
    module = _LOGIN_MODULES.get(mechanism)
    if module is None:
        raise JobError(
            f"kafka.options: sasl.mechanism {mechanism} is not supported by the Spark jobs",
            remedy=f"use one of {', '.join(_LOGIN_MODULES)}",
        )
    username = kafka.options.get("sasl.username", "")
    password = kafka.password.get_secret_value() if kafka.password is not None else ""
    login = f"{module} required username={_quoted(username)} password={_quoted(password)};"
    return {"sasl.mechanism": mechanism, "sasl.jaas.config": login}


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
