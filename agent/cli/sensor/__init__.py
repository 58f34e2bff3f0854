"""Commands for those who write a sensor's firmware or install sensors."""
