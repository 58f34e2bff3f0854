"""What holds for every test."""

from hypothesis import HealthCheck, settings

# No property depends on speed: a machine may be busy with something else. A failure prints how to repeat it.
settings.register_profile("oncegate", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("oncegate")
