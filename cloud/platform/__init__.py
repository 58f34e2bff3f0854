"""What lies beneath: the JVM, Spark's session, disks."""
