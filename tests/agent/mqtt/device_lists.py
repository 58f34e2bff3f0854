"""A list of Zigbee2MQTT, processed at once."""

from agent.mqtt.device_list import DeviceListReader
from agent.mqtt.zigbee_names import ZigbeeNames


def learn(names: ZigbeeNames, topic: str, payload: bytes) -> bool:
    """Whether the payload was a list."""
    return bool(DeviceListReader(names.update, topic, payload).read(lambda: False))
