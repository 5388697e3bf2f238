"""Manage the pages in a pool, with a free list, reference counts, and a cache of full pages."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import count

from helpers.validate import check_whole

PageKey = tuple[Hashable, tuple[int, ...]]  # the id of the prefix before a page, and the page's token ids


class PageManager:
    """Decides which pages of a pool are in use and what they contain. A `PagePool` stores the KV entries.

    A page is identified by its index in the pool. Each page table that contains a page holds one reference to
    it. A page without references is free. A free page keeps its content until it is allocated again. The page
    that has been free longest is allocated first.

    A full page whose tokens have all run is cached, so that other requests can share it. It is looked up by
    its tokens and by the prefix before it. To avoid comparing long prefixes, each sequence of tokens that
    ends with a full page gets an id, the same for equal sequences. Full pages are never written to again, so
    they never have to be copied. Requests that run at the same time may fill several pages with the same
    content. A lookup returns the first of these pages. When that page is allocated again, lookups return the
    next one.

    KV entries depend on more than the tokens. Anything else that they depend on, such as an adapter or the
    version of the weights, is passed as `extra_key`. Sequences with equal tokens but different extra keys do
    not share pages.

    Engines such as vLLM use other names: a page is a block, a page table is a block table, and this class is
    a block manager.

    Args:
        n_pages: number of pages in the pool.
        page_size: number of tokens per page.
        prefix_caching: whether full pages are cached, so that requests can share them.
    """

    def __init__(self, n_pages: int, page_size: int = 16, *, prefix_caching: bool = True) -> None:
        self.n_pages = check_whole("n_pages", n_pages)
        self.page_size, self.prefix_caching = check_whole("page_size", page_size), prefix_caching
        self.ref_counts = [0] * n_pages
        self.free = dict.fromkeys(range(n_pages))  # ordered: the first has been free longest
        self.cached_pages: dict[PageKey, tuple[int, ...]] = {}  # indices of the pages with this content
        self.contents: dict[
            int, tuple[PageKey, int]
        ] = {}  # by page, with the id of the sequence that ends with this page
        self.text_numbers = count(1)  # the empty prefix has the id (extra_key,) instead

    def pages_needed(self, n_tokens: int) -> int:
        """Return the number of pages needed for the KV entries of `n_tokens` tokens."""
        return -(-n_tokens // self.page_size)

    def match_prefix(self, tokens: Sequence[int], extra_key: Hashable = None) -> list[int]:
        """Return the cached pages that contain the longest cached prefix of a sequence, in order.

        The last token of the sequence is never part of the prefix. It has to run in any case, because pages
        store KV entries but no logits.

        Args:
            tokens: token ids of the sequence.
            extra_key: what its KV entries depend on besides the tokens.
        """
        table = list[int]()
        text: Hashable = (extra_key,)
        for end in range(self.page_size, len(tokens), self.page_size):
            equal = self.cached_pages.get((text, tuple(tokens[end - self.page_size : end])))
            if not equal:
                break
            table.append(equal[0])
            text = self.contents[equal[0]][1]
        return table

    def can_allocate(self, tokens: Sequence[int], extra_key: Hashable = None) -> bool:
        """Return whether there are enough free pages for the KV entries of a sequence.

        Cached pages of the sequence's prefix are shared. Those that other requests are using need not be
        free.
        """
        in_use = sum(self.ref_counts[page] > 0 for page in self.match_prefix(tokens, extra_key))
        return self.pages_needed(len(tokens)) - in_use <= len(self.free)

    def allocate(self) -> int:
        """Allocate the page that has been free longest; return its index.

        The page gets one reference, and its content is lost. At least one page must be free.
        """
        page = next(iter(self.free))
        if page in self.contents:
            key, _ = self.contents.pop(page)
            if equal := [other for other in self.cached_pages.pop(key) if other != page]:
                self.cached_pages[key] = (*equal,)
        self.incref(page)
        return page

    def incref(self, page: int) -> None:
        """Add one reference to a page. If the page was free, it no longer is."""
        self.ref_counts[page] += 1
        self.free.pop(page, None)

    def release(self, table: list[int]) -> None:
        """Remove one reference to each page in a page table, and empty the table.

        The last page is freed first, so the KV entries at the end of a sequence are lost before those at the
        beginning.

        Raises:
            ValueError: a page in the table is already free, which means that the table has been released
                before. Nothing is changed.
        """
        if free := sorted({*table} & {*self.free}):
            raise ValueError(f"pages {free} are free already; expected a table that has not been released")
        while table:
            page = table.pop()
            self.ref_counts[page] -= 1
            if not self.ref_counts[page]:
                self.free[page] = None

    def cache_full_pages(
        self, table: Sequence[int], tokens: Sequence[int], start: int, end: int, extra_key: Hashable = None
    ) -> None:
        """Cache the pages of a sequence that became full in a step.

        Args:
            table: page table of the sequence.
            tokens: token ids of the sequence.
            start: index of the first token that ran in the step, from 0.
            end: index of the last token that ran in the step, plus 1.
            extra_key: what the KV entries of the sequence depend on besides the tokens.
        """
        size = self.page_size
        for i in range(start // size, end // size) if self.prefix_caching else ():
            text = self.contents[table[i - 1]][1] if i else (extra_key,)
            key = text, tuple(tokens[i * size : (i + 1) * size])
            equal = self.cached_pages.get(key, ())
            self.cached_pages[key] = (*equal, table[i])
            self.contents[table[i]] = key, self.contents[equal[0]][1] if equal else next(self.text_numbers)
