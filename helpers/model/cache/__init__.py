"""KV caches behind one interface, one file a kind."""

from helpers.model.cache.base import KVCache, Sizes
from helpers.model.cache.growing import GrowingCache
from helpers.model.cache.static import StaticCache
from helpers.model.cache.windowed import WindowedCache

__all__ = ["GrowingCache", "KVCache", "Sizes", "StaticCache", "WindowedCache"]
