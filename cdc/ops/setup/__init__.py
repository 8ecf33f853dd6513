"""Does the work of ``cdc init``: looks at source, Kafka and replica, then writes a first configuration and next steps.

It takes a person's answers, and returns the text of a file and commands to paste. It changes nothing on the servers.
"""
