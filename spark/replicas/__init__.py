"""Replicas as a job reads them, each at one moment: PostgreSQL under a snapshot, others through their own driver."""
