"""Provides real PostgreSQL, Kafka and Redis (given by URL, in containers, or embedded), and a schema registry."""

from cdc.lab.stack.binaries import PostgresMajor
from cdc.lab.stack.choice import Backend, Choice, choose, probe
from cdc.lab.stack.kafka import KafkaBroker
from cdc.lab.stack.postgres import PostgresServer
from cdc.lab.stack.redis_server import RedisServer
from cdc.lab.stack.registry import RegistryServer
from cdc.lab.stack.stack import Kafka, Postgres, Redis, Stack, open_kafka, open_postgres, open_redis, open_stack

__all__ = [
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
    "open_stack",
    "probe",
]
