"""Forward: give every stored event to Kafka, and learn from receipts that the table has it."""
