"""Answers that are reused, soundly: keys, levels, stores."""
