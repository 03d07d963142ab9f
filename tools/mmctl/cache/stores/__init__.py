"""Shared stores: what they are asked for, and what happens when they do not answer."""
