"""A fleet of one hundred thousand gateways, as far as it fits on one machine."""
