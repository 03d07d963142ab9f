"""A real Triton on this machine: its runtime, its process, its backends."""
