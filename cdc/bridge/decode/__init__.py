"""Pure: bytes of the replication stream → the messages of ``cdc.contract.change``. No socket, no clock, no catalog."""
