"""Documents in .txt files, with one folder for each class, as in IMDb."""
