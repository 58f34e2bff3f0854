"""The cloud programs: write each event of the topic into the table once, and send receipts to the gateways."""
