"""Where files lie: on a disk, or on object storage."""
