"""The two ways between us and a topic: ``publish`` writes, ``replay`` reads. It knows no database.

Start with ``publish/transactional.py`` (records and progress in one Kafka transaction) and ``replay/reader.py``
(committed records and honest ends); ``replay/cut.py`` finds the place where all partitions together are one moment of
the source. ``brokers`` says why Kafka does not let us in. Every product that touches a topic comes through here.
"""
