"""Text to continue: windows of tokens, of which each has the next one as its label."""
