"""Where the events ended: a Delta table, a Kafka topic, a PostgreSQL table, each read as rows."""
