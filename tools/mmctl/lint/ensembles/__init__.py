"""Rules about ensembles: their own wiring, and what they call."""
