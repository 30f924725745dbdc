"""A text set of the Hugging Face hub, or a folder of csv, json or parquet files."""
