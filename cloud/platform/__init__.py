"""Access to the platform: the JVM, disks, calls with a time limit."""
