"""Values are rounded to 11 levels between the least and the largest one, 3.5 bits each."""
