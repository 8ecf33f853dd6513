"""The doubles of confluent_kafka's clients, for what the product calls. ``listen`` gives a cluster its address."""

from __future__ import annotations

from tests.world.kafka_admin import AdminClient
from tests.world.kafka_consumer import Consumer
from tests.world.kafka_metadata import listen
from tests.world.kafka_producer import Producer

__all__ = ["AdminClient", "Consumer", "Producer", "listen"]
