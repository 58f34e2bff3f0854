"""Opening a store whatever state its files are in."""
