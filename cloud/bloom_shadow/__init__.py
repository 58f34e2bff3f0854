"""What a Bloom filter would have cost."""
