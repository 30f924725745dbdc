"""A set of images of the Hugging Face hub, or a folder of parquet or image files."""
