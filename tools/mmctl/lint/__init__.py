"""Rules about pipelines and repositories, one table."""
