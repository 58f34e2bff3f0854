"""Installation of the programs that the services need."""
