"""Checks of what exactly-once delivery needs of Kafka."""
