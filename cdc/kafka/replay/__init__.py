"""Kafka out: committed records, honest ends of topics, and where a consistent cut lies. Knows no database."""
