"""Writes the values of topics in Avro, in Confluent's wire format, and reads them as the JSON of our contract. Pure."""
