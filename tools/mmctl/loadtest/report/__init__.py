"""Results of `mmctl bench` and `mmctl trace` as one HTML file that needs no network."""
