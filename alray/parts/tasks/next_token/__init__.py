"""Each position of a text has the next token as its label."""
