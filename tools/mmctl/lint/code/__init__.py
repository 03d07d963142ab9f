"""Rules about the code of Python models that call others: read as a syntax tree, never run."""
