"""Describes the work of Spark jobs, and what a job and the command that starts it agree on; does not need Spark."""
