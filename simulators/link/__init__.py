"""Link emulation: UDP and TCP proxies that apply the same faults in front of any target."""
