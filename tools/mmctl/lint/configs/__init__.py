"""Rules about one config.pbtxt and what lies beside it."""
