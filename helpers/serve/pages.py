"""Keep track of the pages of a pool: a free list, reference counts, and a cache of full pages."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import count

from helpers.validate import check_whole

PageKey = tuple[Hashable, tuple[int, ...]]  # the number of the text before a page, and the tokens of the page


class PageManager:
    """A manager of the pages of a pool, by page number; a `PagePool` stores their KV entries.

    Each page table that contains a page holds one reference to it. A page without references is free. It
    keeps its content until it is allocated again, and the page that has been free longest is allocated first.

    A full page whose tokens have all run is cached: it can be found by its tokens and the text before it.
    Both are hashed and compared. To avoid comparing long texts, each text that fills its pages gets a number,
    the same for equal texts. Full pages are never written to again, so they never have to be copied. Requests
    that run at the same time may fill several pages with the same content. Then the first of these pages is
    found, and after its content is lost, the next.

    KV entries do not depend on tokens alone. Anything else that they depend on, such as an adapter or the
    version of the weights, is the `extra_key` of a text. Texts with the same tokens but different keys are
    different texts.

    Engines such as vLLM call this class a block manager, a page a block, and a page table a block table.

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
        self.cached_pages: dict[PageKey, tuple[int, ...]] = {}  # pages by their content
        self.contents: dict[
            int, tuple[PageKey, int]
        ] = {}  # by page, with the number of the text up to its end
        self.text_numbers = count(1)  # for an empty text, (extra_key,) replaces the number

    def pages_needed(self, n_tokens: int) -> int:
        """Return how many pages are needed for n_tokens tokens."""
        return -(-n_tokens // self.page_size)

    def match_prefix(self, tokens: Sequence[int], extra_key: Hashable = None) -> list[int]:
        """Return the cached pages with the beginning of a text, in order.

        If the text fills its pages exactly, the last page is left out: pages have KV entries but no logits,
        so the last token has to run in any case.

        Args:
            tokens: ids of the text.
            extra_key: what its KV entries depend on besides tokens.
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
        """Return whether there are enough free pages for a text.

        Cached pages with the beginning of the text that are in use by other requests are shared, so they need
        not be free.
        """
        in_use = sum(self.ref_counts[page] > 0 for page in self.match_prefix(tokens, extra_key))
        return self.pages_needed(len(tokens)) - in_use <= len(self.free)

    def allocate(self) -> int:
        """Return the page that has been free longest, with one reference to it; its content is lost.

        At least one page must be free.
        """
        page = next(iter(self.free))
        if page in self.contents:
            key, _ = self.contents.pop(page)
            if equal := [other for other in self.cached_pages.pop(key) if other != page]:
                self.cached_pages[key] = (*equal,)
        self.incref(page)
        return page

    def incref(self, page: int) -> None:
        """Add a reference to a page; if the page was free, it no longer is."""
        self.ref_counts[page] += 1
        self.free.pop(page, None)

    def release(self, table: list[int]) -> None:
        """Remove one reference to each page of a table, and empty the table.

        The last page is freed first, so the end of a text is lost before its beginning.

        Raises:
            ValueError: a page of the table is free already, which means that the table has been released
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
        """Cache the pages of a text that became full in a step.

        Args:
            table: page table of the text.
            tokens: ids of the text.
            start: index of the first token that ran in the step, from 0.
            end: index of the last token that ran in the step, plus 1.
            extra_key: what the KV entries of the text depend on besides tokens.
        """
        size = self.page_size
        for i in range(start // size, end // size) if self.prefix_caching else ():
            text = self.contents[table[i - 1]][1] if i else (extra_key,)
            key = text, tuple(tokens[i * size : (i + 1) * size])
            equal = self.cached_pages.get(key, ())
            self.cached_pages[key] = (*equal, table[i])
            self.contents[table[i]] = key, self.contents[equal[0]][1] if equal else next(self.text_numbers)
