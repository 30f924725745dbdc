"""The all-reduce of gloo or NCCL."""
