"""Values are rounded to 8 levels between the least and the largest one, 3 bits each."""
