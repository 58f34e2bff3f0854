"""Receives events over MQTT: from Zigbee2MQTT, and from any other publisher."""
