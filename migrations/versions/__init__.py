"""One module per version, ``NNNN_subject``; each can run while the sink of the version before is still running."""
