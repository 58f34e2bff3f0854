"""Side-by-side measurements: what a user would pick instead, the physical limit, and us, in one run on one machine."""
