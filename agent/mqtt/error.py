"""The error of the MQTT client."""

from __future__ import annotations


class MqttError(Exception):
    """The connection cannot be made, or has failed: retry."""
