"""The world in memory."""
