"""Turns bytes of the replication stream into messages of ``cdc.contract.change``. Pure: no socket, clock or catalog."""
