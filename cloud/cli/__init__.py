"""The command `oncegate-cloud`: starts the cloud programs, with Spark where they need it."""
