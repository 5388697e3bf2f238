"""KV cache classes that share one interface; see `base`."""

from helpers.model.cache.base import Cache
from helpers.model.cache.growing import GrowingCache
from helpers.model.cache.paged import PagedCache, PagePool
from helpers.model.cache.quantized import QuantizedCache
from helpers.model.cache.state import StateCache
from helpers.model.cache.static import StaticCache
from helpers.model.cache.window import WindowCache
