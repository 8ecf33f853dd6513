"""Reads a topic's values with code of its own: a checker that shared the bridge's encoder would share its bugs."""
