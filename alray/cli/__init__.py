"""The command line: thin, it parses, calls orchestrate and prints."""
