"""Writes rows in the envelope of Debezium's PostgreSQL connector, and reads them as the JSON of our contract. Pure."""
