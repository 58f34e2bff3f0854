"""The cloud's side: writes each event of the topic into the table once, and sends receipts to the gateways."""
