"""A field test: play a scenario against a gateway, remote or started here, and judge what became of the events."""
