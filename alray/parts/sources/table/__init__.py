"""Rows of numbers in CSV or Parquet files: columns of numbers, and a column of classes."""
