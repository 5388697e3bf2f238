"""Which request owns each page: a free list, reference counts, and full pages found by their tokens."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import count

from helpers.validate import check_whole

Key = tuple[Hashable, tuple[int, ...]]  # the number of the text before a page, and the tokens of the page


class PageManager:
    """The pages of a pool, by number; their KV entries are stored in a `PagePool`.

    A page is referenced once by each page table that contains it. A page without references is free; its
    content stays until the page is allocated again, and the page that has been free longest is allocated
    first. A page that is full and written is cached: it can be found by its tokens and the text before it.
    Both are hashed, and both are compared. So that no text is compared twice, each text that fills its pages
    gets a number, the same number for equal texts. Full pages are never written to, so they never have to be
    copied. Requests that run at the same time may fill equal pages: the first of them is found, and once that
    is lost, the next.

    KV entries depend on more than tokens. Everything else that they depend on, such as an adapter or the
    version of the weights, is the `extra_key` of a text: equal tokens with another key are another text.

    Engines such as vLLM call it a block manager, a page a block, and a page table a block table.

    Args:
        n_pages: pages in the pool.
        page_size: KV entries in a page.
        prefix_caching: whether full pages can be found and shared.
    """

    def __init__(self, n_pages: int, page_size: int = 16, *, prefix_caching: bool = True) -> None:
        self.n_pages = check_whole("n_pages", n_pages)
        self.page_size, self.prefix_caching = check_whole("page_size", page_size), prefix_caching
        self.ref_counts = [0] * n_pages
        self.free = dict.fromkeys(range(n_pages))  # ordered: the first has been free longest
        self.cached: dict[Key, tuple[int, ...]] = {}  # pages by their content
        self.contents: dict[int, tuple[Key, int]] = {}  # by page, with the number of the text to its end
        self.text_numbers = count(1)  # an empty text has (extra_key,) instead

    def pages_needed(self, n_tokens: int) -> int:
        """Return how many pages n_tokens tokens take."""
        return -(-n_tokens // self.page_size)

    def match_prefix(self, tokens: Sequence[int], extra_key: Hashable = None) -> list[int]:
        """Return the cached pages that hold the beginning of a text, full pages only.

        The last token always has to run, since pages hold KV entries and no logits. So if a text fills its
        pages exactly, its last page is not returned.
        """
        table = list[int]()
        text: Hashable = (extra_key,)
        for end in range(self.page_size, len(tokens), self.page_size):
            equal = self.cached.get((text, tuple(tokens[end - self.page_size : end])))
            if not equal:
                break
            table.append(equal[0])
            text = self.contents[equal[0]][1]
        return table

    def can_allocate(self, tokens: Sequence[int], extra_key: Hashable = None) -> bool:
        """Whether there are enough pages for a text; cached pages that are in use need not be free."""
        in_use = sum(self.ref_counts[page] > 0 for page in self.match_prefix(tokens, extra_key))
        return self.pages_needed(len(tokens)) - in_use <= len(self.free)

    def allocate(self) -> int:
        """Take the page that has been free longest; its content is lost. At least one page must be free."""
        page = next(iter(self.free))
        if page in self.contents:
            key, _ = self.contents.pop(page)
            if equal := [other for other in self.cached.pop(key) if other != page]:
                self.cached[key] = (*equal,)
        self.incref(page)
        return page

    def incref(self, page: int) -> None:
        """Add one reference to a page."""
        self.ref_counts[page] += 1
        self.free.pop(page, None)

    def release(self, table: list[int]) -> None:
        """Remove one reference from each page of a table, and empty the table.

        The last page is freed first, so the end of a text is lost before its beginning.

        ValueError, and nothing is changed, if a page has no references: its table has been released before.
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
        """Cache the pages of a text that have become full now that tokens `start` up to `end` have run."""
        size = self.page_size
        for i in range(start // size, end // size) if self.prefix_caching else ():
            text = self.contents[table[i - 1]][1] if i else (extra_key,)
            key = text, tuple(tokens[i * size : (i + 1) * size])
            equal = self.cached.get(key, ())
            self.cached[key] = (*equal, table[i])
            self.contents[table[i]] = key, self.contents[equal[0]][1] if equal else next(self.text_numbers)
