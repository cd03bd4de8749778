"""An environment in Python as a service that ragen's environment server plays: ``ragen-env serve``."""

from .run import ServiceError, serve

__all__ = ["ServiceError", "serve"]
