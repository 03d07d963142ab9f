"""Answers for texts that mean the same, and how many of them may be wrong."""
