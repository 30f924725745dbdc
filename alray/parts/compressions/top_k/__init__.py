"""Only the entries of largest magnitude are sent. The others are added to the next gradient (error feedback)."""
