"""Steps of entities."""

from customer import find_entities

__all__ = ["find_entities"]
