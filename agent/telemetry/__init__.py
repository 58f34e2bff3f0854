"""The agent's reports about itself."""
