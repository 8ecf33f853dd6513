"""Measurements of bridge and sink beside the limits of the same machine: ``python -m tests.benchmarks``."""
