"""Kafka: the clients and their calls."""
