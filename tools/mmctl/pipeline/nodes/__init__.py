"""Node kinds of pipeline.yaml."""
