"""Steps of customer_service."""

from customer import find_entities, write_reply

__all__ = ["find_entities", "write_reply"]
