"""Compacted topics, ours or other programs': what they hold, why they are not compacted, what compaction costs.

The rules are pure (``lint``, ``verdict``, ``plan``, ``cost``), ``cluster``, ``wire``, ``door`` and ``scan`` talk to
brokers. Start with ``inspection.py``, which brings both together. ``lookup`` reads rows straight from a topic,
``history`` one key's changes.
"""
