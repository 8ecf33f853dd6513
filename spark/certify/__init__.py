"""Certificates of comparisons: digests of topics, the file that chains certificates, and how they are verified."""
