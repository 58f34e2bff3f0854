"""What the gateway's ways in take, beside what a user would pick instead: `python -m benchmarks.agent`."""
