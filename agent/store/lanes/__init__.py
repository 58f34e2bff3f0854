"""Lanes: a store for each, and the intake that divides deliveries among them."""
