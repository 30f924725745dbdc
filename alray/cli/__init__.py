"""The command line: each command parses its arguments, calls `alray.orchestrate` and prints the answer."""
