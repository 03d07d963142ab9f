"""Engines: planned anywhere, built where a GPU is, and never served where they do not fit."""
