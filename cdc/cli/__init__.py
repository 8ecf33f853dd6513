"""The command line, and nothing else: a module for each command about a deployment."""
