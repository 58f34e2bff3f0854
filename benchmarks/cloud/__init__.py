"""The cloud's side against what a user would pick instead."""
