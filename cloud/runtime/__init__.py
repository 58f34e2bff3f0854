"""Access to what runs beneath the job: the JVM, disks, calls with a time limit."""
