"""The way in over MQTT: what Zigbee2MQTT publishes, and events of any other publisher."""
