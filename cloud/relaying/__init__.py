"""The relay: receipts for consumers that give none."""
