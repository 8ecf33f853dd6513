"""A peer: Debezium's connectors under Kafka Connect, as its documentation configures them, and tuned for rate."""
