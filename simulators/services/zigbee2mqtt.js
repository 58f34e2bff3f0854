// Preloaded into Zigbee2MQTT: an adapter without a radio, which emits real ZCL frames on SIGUSR2. They pass through
// herdsman, converters and publisher as usual. Started by zigbee2mqtt.py.
'use strict';

const path = require('path');

const herdsman = path.join(process.env.ONCEGATE_NODE_MODULES, 'zigbee-herdsman', 'dist');
const {Adapter} = require(path.join(herdsman, 'adapter'));
const Zcl = require(path.join(herdsman, 'zspec', 'zcl'));

const REPORTS = Number(process.env.ONCEGATE_REPORTS);
const DEVICES = Number(process.env.ONCEGATE_DEVICES);
const TURN_MS = 10;
const FIRST_ADDRESS = 0x1234;
const TEMPERATURE_CLUSTER = 0x0402;
const LOWEST = 1000; // 10.00 degrees

class RadiolessAdapter extends Adapter {
    constructor(...options) {
        super(...options);
        this.hasZdoMessageOverhead = false;
        this.manufacturerID = 0;
    }
    async start() {
        process.on('SIGUSR2', () => this.emitReports());
        return 'resumed';
    }
    async stop() {}
    async reset() {}
    async getCoordinatorIEEE() { return '0x00124b0012345678'; }
    async getCoordinatorVersion() { return {type: 'radioless', meta: {revision: '1'}}; }
    async supportsBackup() { return false; }
    async getNetworkParameters() {
        return {panID: 0x1a62, extendedPanID: '0xdddddddddddddddd', channel: 11, nwkUpdateID: 0};
    }
    async addInstallCode() {}
    waitFor() { return {promise: new Promise(() => {}), cancel() {}}; }
    async sendZdo() { return [0, undefined]; }
    async permitJoin() {}
    async sendZclFrameToEndpoint() {}
    async sendZclFrameToGroup() {}
    async sendZclFrameToAll() {}

    emitReports() {
        let number = 0;
        const timer = setInterval(() => {
            if (number >= REPORTS) clearInterval(timer);
            else this.emitReport(number++);
        }, TURN_MS);
    }

    // A report (0x0a) of attribute 0 (measuredValue) as int16 (0x29): each number is another temperature.
    emitReport(number) {
        const value = LOWEST + Math.floor(number / DEVICES);
        const data = Buffer.from([0x18, number & 0xff, 0x0a, 0x00, 0x00, 0x29, value & 0xff, value >> 8]);
        this.emit('zclPayload', {
            clusterID: TEMPERATURE_CLUSTER,
            address: FIRST_ADDRESS + (number % DEVICES),
            header: Zcl.Header.fromBuffer(data),
            data,
            endpoint: 1,
            linkquality: 200,
            groupID: 0,
            wasBroadcast: false,
            destinationEndpoint: 1,
        });
    }
}

Adapter.create = async (...options) => new RadiolessAdapter(...options);
