"""A lossy link between a real sensor and a gateway, which checks how the sensor sends and resends."""
