"""What ``cdc init`` does: looks at source, Kafka and replica, and writes a first configuration and the next commands.

In: answers of a person. Out: a file's text, and commands to paste. It reads from the servers and changes nothing there.
"""
