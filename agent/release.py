"""The release that runs: its version, and whether the modules on an event's path are compiled (pyproject.toml)."""

from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import version as installed_version

from contract import fingerprint


def version() -> str:
    """Return the version of the installed package."""
    return installed_version("oncegate")


def form() -> str:
    """Return `compiled` or `pure`, by the file that was loaded: all compiled modules are in one library."""
    return "compiled" if str(fingerprint.__file__).endswith(tuple(EXTENSION_SUFFIXES)) else "pure"
