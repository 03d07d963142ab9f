"""From sources to locks, versions and served trees.

catalog   what can be called, with its signature: read from locks and configs alone
compiled  pipelines -> what their folders must hold, still without touching the disk
merged    the one file that a compiled pipeline may need weights for
build     exports models and writes folders; `check_built` compares instead of writing
served    the folder that a Triton reads
adopt     ensembles of somebody's repository become pipelines
"""
