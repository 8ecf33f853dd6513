"""The web page for the person on call: the state of one or more deployments, now and over the last hours."""
