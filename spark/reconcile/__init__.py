"""Compares a source table with its topic, and the topic with the replica, at one exact snapshot."""
