"""Offer a known load and measure the answers."""
