"""The cloud job: from the topic to the table, each event once, and receipts back to the gateways."""
