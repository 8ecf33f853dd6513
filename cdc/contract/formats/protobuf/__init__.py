"""Writes values in Protobuf, in Confluent's wire format, and reads them as the JSON of our contract. Pure."""
