"""The formats that agent, cloud and simulators share: events, fingerprints, Kafka records, receipts."""
