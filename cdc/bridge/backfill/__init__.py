"""Publishes whole tables, and single rows, beside the stream.

Start with ``bridge/order/touched.py``: it says why a backfill is right. ``table`` has the phases of one table, and
``work`` what the bridge's thread does for all tables between two reads of the stream. ``intake`` takes in what people
and the bridge ask for, ``turns`` says which table is next, ``readers`` are the threads that read chunks
(``bridge/capture/chunk.py``), and ``lines`` makes records of their rows. ``surroundings`` is all that a backfill needs
from the bridge; unit tests replace it.
"""
