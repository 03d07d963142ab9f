"""Triton's own file formats: configurations, releases, repositories."""
