"""Certificates, without a cluster."""
