"""Decides which tables are captured, and which topics they have."""
