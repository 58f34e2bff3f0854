"""Run the real parts, Kafka and Spark, as local processes that never outlive whoever started them."""
