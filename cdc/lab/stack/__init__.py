"""Provides real PostgreSQL, Kafka, Redis and schema registry: given by URL, in containers, or embedded."""

from cdc.lab.stack.binaries import PostgresMajor
from cdc.lab.stack.choice import Backend, Choice, choose, probe
from cdc.lab.stack.kafka import KafkaBroker
from cdc.lab.stack.postgres import PostgresServer
from cdc.lab.stack.redis_server import RedisServer
from cdc.lab.stack.registry import RegistryServer
from cdc.lab.stack.stack import (
    AnyRegistry,
    Kafka,
    Postgres,
    Redis,
    Stack,
    open_kafka,
    open_postgres,
    open_redis,
    open_registry,
    open_stack,
)

__all__ = [
    "AnyRegistry",
    "Backend",
    "Choice",
    "Kafka",
    "KafkaBroker",
    "Postgres",
    "PostgresMajor",
    "PostgresServer",
    "Redis",
    "RedisServer",
    "RegistryServer",
    "Stack",
    "choose",
    "open_kafka",
    "open_postgres",
    "open_redis",
    "open_registry",
    "open_stack",
    "probe",
]
