"""Writing to Kafka (I/O): topics and producers."""
