"""The HTTP way in, and what looks after the gateway: health, status, metrics."""
