"""Kafka: one broker, or a cluster of several, as local processes."""
