"""The events at the end of the path: a Delta table, a Kafka topic, a PostgreSQL table, each read as rows."""
