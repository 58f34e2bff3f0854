"""What can go wrong with the way in over MQTT."""

from __future__ import annotations


class MqttError(Exception):
    """The connection cannot be had, or has ended; the way in comes back for it."""
