"""Pipeline -> model folders that Triton can load."""
