"""The migrations, one module per version: ``NNNN_subject``. Each can run while a sink of the version before runs."""
