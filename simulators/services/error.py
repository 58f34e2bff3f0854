"""The errors of services."""

from simulators.errors import SimulatorError


class ServiceError(SimulatorError):
    """A service could not be installed or run; the message contains what to do, since a retry alone does not help."""


class ServiceTimeoutError(ServiceError):
    """A deadline passed; on a busy machine a retry may help."""
