"""Values are rounded to 16 levels between the least and the largest one, 4 bits each."""
