"""Components, encoders and networks; the classes that blocks, methods and tasks derive from."""
