"""Values are rounded to 256 levels between the least and the largest one, 8 bits each."""
