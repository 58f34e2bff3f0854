"""Messages as products publish them, and the events that the built-in mappings make of them.

The forms are those of the products' documents: ChirpStack 4.18, The Things Stack 3.35, Tasmota 15, Shelly's RPC
notifications of generation 2, ESPHome 2026, Ruuvi Gateway 1.16, OpenMQTTGateway 1.8, zwave-js-ui 10, Venus OS 3,
rtl_433 25.
"""

from typing import Any, NamedTuple


class Published(NamedTuple):
    """A message, and its event: None where it is none."""

    mapping: str
    topic: str
    body: str
    event: dict[str, Any] | None


PUBLISHED = [
    Published(
        "chirpstack-v4",
        "application/17c8/device/0101010101ABCDEF/event/up",
        '{"deduplicationId":"3ac7e3c4-4401-4b8d-9386-a5c902f9202d","time":"2022-07-18T09:34:15.775023242+00:00",'
        '"deviceInfo":{"tenantId":"52f1","devEui":"0101010101ABCDEF","tags":{"room":"1"}},"devAddr":"00189440",'
        '"adr":true,"dr":1,"fCnt":4,"fPort":1,"confirmed":false,"data":"qg==","object":{"temperature":25.2},'
        '"rxInfo":[{"gatewayId":"0016c001f153a14c","rssi":-36,"snr":10.5}],"txInfo":{"frequency":867100000}}',
        {
            "device": "urn:dev:mac:0101010101abcdef",
            "id": "3ac7e3c4-4401-4b8d-9386-a5c902f9202d",
            "time": 1_658_136_855_775,
            "data": {"temperature": 25.2},
            "ext": {"f_cnt": 4, "dr": 1, "rssi": -36, "snr": 10.5, "gateway": "0016c001f153a14c"},
        },
    ),
    Published(
        "chirpstack-v4",
        "application/17c8/device/01/event/up",
        '{"deduplicationId":"a","time":"2022-07-18T09:34:15Z","deviceInfo":{"devEui":"01"},"fPort":2,"data":"qg=="}',
        {
            "device": "urn:dev:mac:01",
            "id": "a",
            "time": 1_658_136_855_000,
            "data": {"f_port": 2, "payload": "qg=="},
        },
    ),
    Published("chirpstack-v4", "application/17c8/device/01/event/join", '{"deduplicationId":"a"}', None),
    Published(
        "the-things-stack-v3",
        "v3/app1@tenant1/devices/dev1/up",
        '{"end_device_ids":{"device_id":"dev1","dev_eui":"0004A30B001C0530"},"received_at":"2020-02-12T15:15:46.1Z",'
        '"uplink_message":{"session_key_id":"AXA50AH/","f_cnt":1,"f_port":1,"frm_payload":"gkHe",'
        '"decoded_payload":{"temperature":1},"rx_metadata":[{"gateway_ids":{"gateway_id":"gtw1"},"rssi":-35,"snr":5.2}],'
        '"received_at":"2020-02-12T15:15:45.787Z"}}',
        {
            "device": "urn:dev:mac:0004a30b001c0530",
            "id": "AXA50AH//1",
            "time": 1_581_520_545_787,
            "data": {"temperature": 1},
            "ext": {"f_cnt": 1, "rssi": -35, "snr": 5.2, "gateway": "gtw1"},
        },
    ),
    Published(
        "the-things-stack-v3",
        "",  # over HTTP; fields that are 0 are left out
        '{"end_device_ids":{"dev_eui":"01"},"uplink_message":{"session_key_id":"A","f_port":1,"frm_payload":"gkHe",'
        '"received_at":"2020-02-12T15:15:45Z"}}',
        {
            "device": "urn:dev:mac:01",
            "id": "A/0",
            "time": 1_581_520_545_000,
            "data": {"f_port": 1, "payload": "gkHe"},
        },
    ),
    Published("the-things-stack-v3", "v3/app1/devices/dev1/join", '{"join_accept":{"session_key_id":"A"}}', None),
    Published(
        "tasmota",
        "tele/kitchen/SENSOR",
        '{"Time":"2026-03-24T20:17:07","AM2301":{"Temperature":24.6,"Humidity":55.1},"TempUnit":"C"}',
        {
            "device": "tasmota:kitchen",
            "id": "2026-03-24T20:17:07",
            "data": {"AM2301": {"Temperature": 24.6, "Humidity": 55.1}},
            "ext": {"temp_unit": "C"},
        },
    ),
    Published(
        "shelly-gen2",
        "shellyplus1-a8032abe54dc/events/rpc",
        '{"src":"shellyplus1-a8032abe54dc","dst":"shellyplus1-a8032abe54dc/events","method":"NotifyStatus",'
        '"params":{"ts":1631266595.44,"switch:0":{"id":0,"output":true,"source":"button"}}}',
        {
            "device": "shelly:shellyplus1-a8032abe54dc",
            "time": 1_631_266_595_440,
            "data": {"switch:0": {"id": 0, "output": True, "source": "button"}},
        },
    ),
    Published("shelly-gen2", "s/events/rpc", '{"src":"s","method":"NotifyEvent","params":{"ts":1.0}}', None),
    Published("esphome", "node/sensor/room t/state", "21.5", {"device": "esphome:node", "data": {"room t": 21.5}}),
    Published(
        "esphome",
        "node/binary_sensor/door/state",
        "OFF\n",
        {"device": "esphome:node", "data": {"door": False}},
    ),
    Published("esphome", "node/binary_sensor/door/state", "ON", {"device": "esphome:node", "data": {"door": True}}),
    Published("esphome", "node/sensor/mode/state", "heat", {"device": "esphome:node", "data": {"mode": "heat"}}),
    Published("esphome", "node/sensor/power/state", "0", {"device": "esphome:node", "data": {"power": 0}}),
    Published(
        "ruuvi-gateway",
        "ruuvi/C8:25:2D:8E:9C:2C/F4:1F:0C:28:CB:D6",
        '{"gw_mac":"C8:25:2D:8E:9C:2C","rssi":-26,"aoa":[],"gwts":"1653668027","ts":"1653668027",'
        '"data":"0201061BFF9904051A1D","coords":""}',
        {
            "device": "urn:dev:mac:f41f0c28cbd6",
            "time": 1_653_668_027_000,
            "data": {"data": "0201061BFF9904051A1D"},
            "ext": {"rssi": -26, "gateway": "C8:25:2D:8E:9C:2C"},
        },
    ),
    Published(
        "ruuvi-gateway",
        "ruuvi/C8:25:2D:8E:9C:2C/F4:1F:0C:28:CB:D6",
        '{"gw_mac":"C8","rssi":-26,"data":"0201"}',
        {"device": "urn:dev:mac:f41f0c28cbd6", "data": {"data": "0201"}, "ext": {"rssi": -26, "gateway": "C8"}},
    ),
    Published("ruuvi-gateway", "ruuvi/C8:25:2D:8E:9C:2C/gw_status", '{"state":"online"}', None),
    Published(
        "openmqttgateway",
        "home/OpenMQTTGateway/BTtoMQTT/A4C138AABBCC",
        '{"id":"A4:C1:38:AA:BB:CC","mac_type":0,"name":"ATC","rssi":-80,"brand":"Xiaomi","model":"TH",'
        '"model_id":"LYWSD03MMC_ATC","type":"THB","tempc":23.1,"hum":48}',
        {
            "device": "urn:dev:mac:a4c138aabbcc",
            "data": {"tempc": 23.1, "hum": 48},
            "ext": {"name": "ATC", "rssi": -80, "model_id": "LYWSD03MMC_ATC", "gateway": "OpenMQTTGateway"},
        },
    ),
    Published(
        "zwave-js-ui",
        "zwave/nodeID_3/sensor_multilevel/endpoint_0/Air_temperature",
        '{"time":1767225600123,"value":21.5}',
        {
            "device": "zwave:nodeID_3",
            "time": 1_767_225_600_123,
            "data": {"sensor_multilevel/endpoint_0/Air_temperature": 21.5},
        },
    ),
    Published(
        "zwave-js-ui",
        "zwave/3/50/0/value",
        '{"id":"3-50-0-value-66049","nodeId":3,"value":false,"lastUpdate":1767225600123}',
        {"device": "zwave:3", "time": 1_767_225_600_123, "data": {"50/0/value": False}},
    ),
    Published("zwave-js-ui", "zwave/3/status", '{"time":1,"status":"Alive"}', None),
    Published(
        "victron",
        "N/c0619ab12/battery/258/Soc",
        '{"value":86.5}',
        {"device": "victron:c0619ab12", "data": {"battery/258/Soc": 86.5}},
    ),
    Published("victron", "N/c0619ab12/battery/258/Soc", '{"value":null}', None),
    Published(
        "rtl_433",
        "rtl_433/host/events",
        '{"time":"2026-03-24 20:17:07","model":"Acurite-Tower","id":1234,"channel":"A","battery_ok":1,'
        '"temperature_C":21.5,"humidity":47,"mic":"CHECKSUM","mod":"ASK","freq":433.92,"rssi":-0.11,"snr":16.2,"noise":-16.3}',
        {
            "device": "rtl433:Acurite-Tower/1234/A",
            "id": "2026-03-24 20:17:07",
            "data": {"battery_ok": 1, "temperature_C": 21.5, "humidity": 47},
            "ext": {"freq": 433.92, "rssi": -0.11, "snr": 16.2, "noise": -16.3},
        },
    ),
    Published(
        "rtl_433",
        "rtl_433/host/events",
        '{"time":"2026-03-24 20:17:07","model":"Prologue-TH","id":7,"channel":0,"temperature_C":21.5}',
        {"device": "rtl433:Prologue-TH/7/0", "id": "2026-03-24 20:17:07", "data": {"temperature_C": 21.5}},
    ),
]
