"""The promises of the world in memory: each script runs on the model and on a real server, and must see the same."""
