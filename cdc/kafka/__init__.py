"""Access to topics: ``publish`` writes them, ``replay`` reads them. Nothing here knows a database.

Start with ``publish/transactional.py`` (records and progress in one Kafka transaction) and ``replay/reader.py``
(committed records, and how far a partition was really read). ``replay/cut.py`` finds the position at which all
partitions together show one moment of the source. ``brokers`` explains why a connection fails. Every product that
touches a topic goes through this package.
"""
