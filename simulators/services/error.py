"""Name what can go wrong with a part."""

from __future__ import annotations


class ServiceError(Exception):
    """A part could not be prepared or run; the message says what to do, since another try alone does not help."""


class ServiceTimeoutError(ServiceError):
    """Something did not happen in time; on a busy machine another try may help."""
