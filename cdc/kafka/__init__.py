"""Access to topics: ``publish`` writes them, ``replay`` reads them. Nothing here knows a database.

Start with ``publish/transactional.py`` (records and progress in one Kafka transaction) and ``replay/reader.py``
(committed records, and how far a partition was really read). ``replay/cut.py`` finds the position at which all
partitions together show one moment of the source. ``brokers`` explains why a connection fails, and ``leaders`` whether
the broker that answers is still the leader. ``wire`` and ``door`` speak Kafka's protocol where the client library does
not. Every product that touches a topic goes through this package.
"""
