"""Real PostgreSQL and Kafka for the demo and the tests: given by URL, in containers, or embedded."""

from cdc.stack.binaries import PostgresMajor
from cdc.stack.choice import Backend, Choice, choose, probe
from cdc.stack.kafka import KafkaBroker
from cdc.stack.postgres import PostgresServer
from cdc.stack.stack import Kafka, Postgres, Stack, open_kafka, open_postgres, open_stack

__all__ = [
    "Backend",
    "Choice",
    "Kafka",
    "KafkaBroker",
    "Postgres",
    "PostgresMajor",
    "PostgresServer",
    "Stack",
    "choose",
    "open_kafka",
    "open_postgres",
    "open_stack",
    "probe",
]
