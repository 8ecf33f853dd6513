"""Pure: bytes of the replication stream → the messages of ``cdc.change``. No socket, no clock, no catalog."""
