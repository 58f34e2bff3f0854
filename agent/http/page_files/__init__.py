"""The files of the status page."""
