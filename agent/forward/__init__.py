"""Forward every stored event to Kafka, and mark it processed once a receipt shows that the table has it."""
