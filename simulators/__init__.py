"""Field tests: simulated sensors and links, real services, a ledger, and an oracle that judges the result."""
