"""Builds a release: sdist, wheels, Debian packages, bill of materials, checksums and notes."""
