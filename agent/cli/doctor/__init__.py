"""The checks of `oncegate doctor`: everything around the gateway that the promise depends on, read-only."""
