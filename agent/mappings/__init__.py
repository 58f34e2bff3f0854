"""Mappings: expressions that make events of payloads in other programs' formats."""
