"""Bring a running Triton to what the workspace declares, without a gap and with a way back."""
