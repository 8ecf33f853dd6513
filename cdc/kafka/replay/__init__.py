"""Reading from Kafka: committed records, how far a topic was really read, and where a consistent cut lies."""
