"""Topics → replica: the process ``cdc sink``, its loop and its sessions."""
