"""The parts that HTTP services share: who may ask, and the answers to those who may not."""
