"""alray: declarative training by Associated Learning, streamed through Ray actors."""

__version__ = "0.1.0"
