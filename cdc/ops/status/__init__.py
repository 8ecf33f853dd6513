"""What ``cdc status`` and ``cdc check`` find out, as plain values."""
