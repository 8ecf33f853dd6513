"""I/O, Kafka in: topics and the one transactional producer."""
