"""Look at everything around the gateway that the promise depends on; change nothing."""
