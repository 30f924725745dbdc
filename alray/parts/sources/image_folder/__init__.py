"""Image files on disk, with one folder for each class."""
