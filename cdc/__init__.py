"""Change data capture from PostgreSQL to compacted Kafka topics."""
