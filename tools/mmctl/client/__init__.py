"""Typed calls to a Triton."""
