"""Methods: how the components of a network learn, one file each."""
