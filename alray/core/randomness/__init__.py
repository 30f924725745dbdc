"""Seeds for every purpose, and the global generators that are seeded from them."""
