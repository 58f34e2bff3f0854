"""The errors of the HTTP server as a whole."""

from __future__ import annotations


class HttpError(Exception):
    """The root of the package's errors."""


class HttpSettingsError(HttpError):
    """The settings, or a file that they name, can never work: do not retry."""
