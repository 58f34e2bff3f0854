"""Field tests: run a scenario against a remote or local gateway, and judge the result."""
