"""The real services, such as Kafka and Spark, as local processes that never outlive the process that started them."""
