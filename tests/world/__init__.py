"""A world in memory: what PostgreSQL and Kafka promise, and the real programs between them, one step at a time.

The programs are the product's own, unchanged. What they call threads are greenlets here, and whatever they would wait
for is a step of one scheduler (``machine``). All chance comes from one seed, and time is virtual. ``kafka`` and
``postgres`` are models at the level of the client libraries. Each promise that they make has a script in
``tests/integration/world``, which runs on the model and on real servers, and must see the same on both.
"""
