"""pipeline.yaml -> a checked graph."""
