// Print what Zigbee2MQTT's real converters make of a report, for device models of many makers, no two of which say the same keys.
// Run, with the modules of simulators/services/zigbee2mqtt.py:
//   ONCEGATE_NODE_MODULES=… node zigbee2mqtt-publications.js > ../../simulators/sensors/zigbee-models.json
'use strict';

const fs = require('fs');
const path = require('path');

const modules = path.join(process.env.ONCEGATE_NODE_MODULES, 'zigbee-herdsman-converters');
const {prepareDefinition, postProcessConvertedFromZigbeeMessage, setLogger} = require(modules);

const SILENT = {debug() {}, info() {}, warning() {}, error() {}};
const KEYS_MIN = 2;
const LAST_SEEN = 1763706000000;
const FIRST_IEEE_ADDRESS = 0x00158d0001000000n;
// What devices say, by cluster: attribute reports and commands as herdsman gives them to converters.
const MESSAGES = [
    ['msTemperatureMeasurement', 'attributeReport', {measuredValue: 2158}],
    ['msRelativeHumidity', 'attributeReport', {measuredValue: 4512}],
    ['msPressureMeasurement', 'attributeReport', {measuredValue: 1003, scaledValue: 10031, scale: -1}],
    ['msIlluminanceMeasurement', 'attributeReport', {measuredValue: 22000}],
    ['msOccupancySensing', 'attributeReport', {occupancy: 1}],
    ['msCO2', 'attributeReport', {measuredValue: 0.000612}],
    ['genPowerCfg', 'attributeReport', {batteryPercentageRemaining: 171, batteryVoltage: 30}],
    ['genOnOff', 'attributeReport', {onOff: 1}],
    ['genOnOff', 'commandToggle', {}],
    ['genLevelCtrl', 'attributeReport', {currentLevel: 254}],
    ['genScenes', 'commandRecall', {sceneid: 1, groupid: 2}],
    ['ssIasZone', 'commandStatusChangeNotification', {zonestatus: 9, extendedstatus: 0}],
    ['seMetering', 'attributeReport', {currentSummDelivered: 12345, instantaneousDemand: 42}],
    ['haElectricalMeasurement', 'attributeReport', {activePower: 42, rmsCurrent: 183, rmsVoltage: 230}],
    ['hvacThermostat', 'attributeReport', {localTemp: 2105, occupiedHeatingSetpoint: 2000, systemMode: 4}],
    ['closuresWindowCovering', 'attributeReport', {currentPositionLiftPercentage: 40}],
    ['closuresDoorLock', 'attributeReport', {lockState: 1}],
    ['lightingColorCtrl', 'attributeReport', {colorTemperature: 370, colorMode: 2}],
    ['msSoilMoisture', 'attributeReport', {measuredValue: 3100}],
    ['genMultistateInput', 'attributeReport', {presentValue: 1}],
];

function fakeDevice(definition, ieeeAddr) {
    const endpoint = {
        ID: 1, inputClusters: [], outputClusters: [], meta: {},
        getClusterAttributeValue: (cluster, name) => ({multiplier: 1, divisor: 1000, acVoltageDivisor: 1, acPowerDivisor: 1,
            acCurrentDivisor: 1000, acVoltageMultiplier: 1, acPowerMultiplier: 1, acCurrentMultiplier: 1})[name],
        saveClusterAttributeKeyValue() {}, supportsInputCluster: () => true, supportsOutputCluster: () => true,
        hasAttribute: () => true, getDevice: () => device, binds: [], configuredReportings: [],
    };
    const device = {
        ieeeAddr, modelID: definition.zigbeeModel?.[0] ?? definition.model, manufacturerName: definition.vendor, meta: {},
        type: 'EndDevice', endpoints: [endpoint], getEndpoint: () => endpoint, powerSource: 'Battery', save() {},
        customClusters: {},
    };
    endpoint.deviceIeeeAddress = ieeeAddr;
    return device;
}

async function payloadOf(definition, device) {
    let payload = {};
    const state = {};
    for (const [cluster, type, data] of MESSAGES) {
        const endpoint = device.endpoints[0];
        const message = {cluster, type, data, device, endpoint, linkquality: 120, groupID: 0, meta: {zclTransactionSequenceNumber: 1}};
        for (const converter of definition.fromZigbee) {
            if (converter.cluster !== cluster || ![converter.type].flat().includes(type)) continue;
            try {
                const meta = {device, logger: SILENT, state, deviceExposesChanged() {}};
                const converted = await converter.convert(definition, message, () => {}, {}, meta);
                if (converted) payload = {...payload, ...converted};
            } catch { /* this message is none for this device */ }
        }
    }
    try {
        postProcessConvertedFromZigbeeMessage(definition, payload, {}, device);
    } catch { return {}; }
    return payload;
}

async function main() {
    setLogger(SILENT);
    const found = [];
    const makers = new Set();
    const keys = new Set();
    const folder = path.join(modules, 'dist', 'devices');
    for (const file of fs.readdirSync(folder).filter((name) => name.endsWith('.js')).sort()) {
        for (const raw of require(path.join(folder, file)).definitions ?? []) {
            if (makers.has(raw.vendor)) continue;
            let definition;
            try { definition = prepareDefinition({...raw}); } catch { continue; }
            const ieee = `0x${(FIRST_IEEE_ADDRESS + BigInt(found.length)).toString(16).padStart(16, '0')}`;
            const payload = await payloadOf(definition, fakeDevice(raw, ieee));
            const said = Object.keys(payload).sort().join();
            if (Object.keys(payload).length < KEYS_MIN || keys.has(said)) continue;
            keys.add(said);
            makers.add(raw.vendor);
            const published = {...payload, linkquality: 120, last_seen: LAST_SEEN + found.length};
            found.push({vendor: raw.vendor, model: raw.model, ieee_address: ieee, published});
        }
    }
    const version = require(path.join(modules, 'package.json')).version;
    const lines = found.map((entry) => `  ${JSON.stringify(entry)}`);
    process.stdout.write(`{"converters": "${version}", "publications": [\n${lines.join(',\n')}\n]}\n`);
}

main();
