"""Everything but the plain POST, served by aiocoap."""
