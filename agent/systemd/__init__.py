"""systemd: journal fields, notifications, the watchdog."""
