"""What gateways take on a thin uplink, beside alternatives."""
