"""``cdc demo``: runs bridge and sink on real servers, kills both on the way, and compares all rows at the end."""
