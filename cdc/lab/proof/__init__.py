"""Compares source, folded topic and replica row by row, for the demo and the tests."""
