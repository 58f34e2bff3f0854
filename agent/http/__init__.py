"""The HTTP server: receives events, and serves health, status and metrics."""
