"""Real servers in seconds, and what can be shown on them: ``cdc stack``, ``cdc demo``, ``cdc learn``.

``stack`` starts a PostgreSQL, a Kafka and a Redis, embedded or in containers, also for the tests. ``proof`` compares
source, topic and replica row by row. Start with ``stack/stack.py``.
"""
