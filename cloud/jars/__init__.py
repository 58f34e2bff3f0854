"""The pinned jars of Spark: their checksums, and their download into a cache."""
