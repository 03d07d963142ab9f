"""Sources -> model files that are proven equal to what they came from."""
