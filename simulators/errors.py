"""The root of the simulators' errors, and the errors of a run."""


class SimulatorError(Exception):
    """Something outside of the simulators failed; the message contains all that the user needs."""


class RunError(SimulatorError):
    """A run ended without a verdict; the message includes the log that explains why."""
