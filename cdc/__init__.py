"""Change data capture from PostgreSQL to compacted Kafka topics."""

__version__ = "0.1.0"
