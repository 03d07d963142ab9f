"""Typed calls to a Triton."""

from mmctl.client.aio import AsyncClient
from mmctl.client.client import Client

__all__ = ["AsyncClient", "Client"]
