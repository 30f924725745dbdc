"""Documents in CSV files: a column of classes, and one or more columns of text."""
