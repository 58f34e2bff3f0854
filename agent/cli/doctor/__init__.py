"""The checks of `oncegate doctor`: everything around the gateway that the guarantees depend on, read-only."""
