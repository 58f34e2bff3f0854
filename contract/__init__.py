"""What crosses the wire between agent, cloud and simulators: events, fingerprints, Kafka records, receipts."""
