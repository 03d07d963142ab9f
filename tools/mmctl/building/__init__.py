"""From sources to locks, versions and served trees."""
