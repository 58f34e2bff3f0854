"""What the agent reports about itself."""
