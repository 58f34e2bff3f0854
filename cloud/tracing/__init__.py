"""What happened to one event, joined from topic, receipts, table, quarantine and audit."""
