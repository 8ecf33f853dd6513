"""Inspects compacted topics of any program: what they hold, why they are not compacted, and what compaction costs.

The rules are pure: ``lint``, ``verdict``, ``plan`` and ``cost``. Only ``cluster`` and ``scan`` talk to
brokers. Start with ``inspection.py``, which brings both together. ``lookup`` reads rows straight from a topic, and
``history`` the changes of one key.
"""
