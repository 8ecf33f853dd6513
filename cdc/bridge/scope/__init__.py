"""Which tables are captured, and which topics they have."""
