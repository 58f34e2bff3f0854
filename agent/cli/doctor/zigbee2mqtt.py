"""Checks Zigbee2MQTT's configuration, and writes the lines that it lacks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from agent.cli.doctor.finding import Finding, fine, warning, wrong

_NAMED_MAX = 3
"""Devices that a finding names."""


def check_zigbee2mqtt(info: bytes | None, base: str) -> Iterator[Finding]:
    """Check Zigbee2MQTT's configuration, as it publishes it; the last finding has the lines that correct all."""
    try:
        config = json.loads(info or b"")["config"]
        advanced, options = dict(config.get("advanced", {})), dict(config.get("device_options", {}))
        devices = {str(address): dict(device) for address, device in dict(config.get("devices", {})).items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        hint = 'start Zigbee2MQTT, compare mqtt.base_topic; without Zigbee2MQTT set it to ""'
        yield warning("zigbee2mqtt", f"it has published nothing in {base}/bridge/info", hint)
        return
    lines: dict[str, dict[str, str]] = {"advanced": {}, "device_options": {}, "devices": {}}
    seen = advanced.get("last_seen", "disable")
    if seen not in ("epoch", "ISO_8601"):
        lines["advanced"]["last_seen"] = "epoch"
        yield warning(
            "zigbee2mqtt", f"advanced.last_seen is {seen}: a message that is delivered twice becomes two events"
        )
    else:
        yield fine("zigbee2mqtt", f"advanced.last_seen is {seen}")
    if advanced.get("output", "json") == "attribute":
        lines["advanced"]["output"] = "json"
        yield wrong("zigbee2mqtt", "advanced.output is attribute, which is not read")
    if advanced.get("cache_state_send_on_startup", True):
        lines["advanced"]["cache_state_send_on_startup"] = "false"
        yield warning("zigbee2mqtt", "at its start it publishes cached states, which look like new events")
    yield _check_qos(options.get("qos", 0), devices, lines)
    if any(lines.values()):
        text = "its configuration.yaml lacks these lines, each in the section of this name; restart it afterwards"
        yield warning("zigbee2mqtt", text, _yaml(lines))


def _check_qos(qos: object, devices: Mapping[str, Mapping[str, Any]], lines: dict[str, dict[str, str]]) -> Finding:
    """Check the QoS of all devices, and add the lines that raise it."""
    names = {address: str(device.get("friendly_name", address)) for address, device in devices.items()}
    own = sorted(
        (address for address in devices if devices[address].get("qos") == 0), key=lambda address: names[address]
    )
    lines["devices"] |= {f"'{address}'": "qos: 1" for address in own}
    if qos != 0 and not own:
        return fine("zigbee2mqtt", f"device_options.qos is {qos}")
    if qos == 0:
        lines["device_options"]["qos"] = "1"
    some = ", ".join(names[address] for address in own[:_NAMED_MAX]) + (" and others" if len(own) > _NAMED_MAX else "")
    who = "all devices" if qos == 0 else some
    text = f"QoS 0 for {who}: the broker keeps none of its messages while the agent is disconnected"
    return wrong("zigbee2mqtt", text)


def _yaml(lines: Mapping[str, Mapping[str, str]]) -> str:
    text = []
    for section, entries in lines.items():
        text += [f"{section}:"] if entries else []
        for key, value in entries.items():
            text += [f"  {key}:", f"    {value}"] if section == "devices" else [f"  {key}: {value}"]
    return "\n".join(text)
