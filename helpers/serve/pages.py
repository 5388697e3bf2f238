"""Which page belongs to whom: a free list, owners counted, and full pages found again by what is in them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import count

from helpers.validate import check_whole

Key = tuple[Hashable, tuple[int, ...]]  # the text before a page, by its number, and the tokens of the page


class PageManager:
    """The pages of a pool, by number; their rows lie in a `PagePool`.

    A page has as many owners as there are tables that it stands in. A page without owners is free; what lies
    in it stays until somebody takes it, and the page that has been free longest is taken first. A page that
    is full and written can be found by its tokens and the text before it: a hash of both leads to it, and
    both are compared. So that no text is compared twice, a text that fills its pages has a number, the same
    for equal texts. Nobody writes to a full page, so it never has to be copied. Requests that run at the same
    time may fill equal pages: the first of them is found, and once it is lost the next.

    Rows depend on more than tokens. What else they depend on, `rows_of`, such as an adapter or the version of
    the weights, stands before every text: equal tokens with another adapter are another text.

    Engines such as vLLM call it a block manager, a page a block, and the table of a sequence its block table.

    Args:
        n_pages: pages in the pool.
        page_size: rows in a page.
        sharing: whether pages are found again.
    """

    def __init__(self, n_pages: int, page_size: int = 16, *, sharing: bool = True) -> None:
        self.n_pages = check_whole("n_pages", n_pages)
        self.page_size, self.sharing = check_whole("page_size", page_size), sharing
        self.owners = [0] * n_pages
        self.free = dict.fromkeys(range(n_pages))  # ordered: the first has been free longest
        self.found: dict[Key, tuple[int, ...]] = {}  # pages by what they hold
        self.holds: dict[int, tuple[Key, int]] = {}  # by page, and the number of the text to its end
        self.numbers = count(1)  # of texts; an empty one has (rows_of,)

    def needed(self, n_tokens: int) -> int:
        """Return how many pages so many tokens take."""
        return -(-n_tokens // self.page_size)

    def match_prefix(self, tokens: Sequence[int], rows_of: Hashable = None) -> list[int]:
        """Return the pages that hold the beginning of a text, full pages only.

        The last token is left to run, as a page holds rows and no logits: of a text that fills its pages the
        last page is not among them.
        """
        table = list[int]()
        text: Hashable = (rows_of,)
        for end in range(self.page_size, len(tokens), self.page_size):
            found = self.found.get((text, tuple(tokens[end - self.page_size : end])))
            if not found:
                break
            table.append(found[0])
            text = self.holds[found[0]][1]
        return table

    def fits(self, tokens: Sequence[int], rows_of: Hashable = None) -> bool:
        """Whether there are pages for a text: of those found, the ones with an owner need not be free."""
        owned = sum(self.owners[page] > 0 for page in self.match_prefix(tokens, rows_of))
        return self.needed(len(tokens)) - owned <= len(self.free)

    def take(self) -> int:
        """Take the page that has been free longest; what lay in it is lost. The caller knows there is one."""
        page = next(iter(self.free))
        if page in self.holds:
            key, _ = self.holds.pop(page)
            if equal := [other for other in self.found.pop(key) if other != page]:
                self.found[key] = (*equal,)
        self.incref(page)
        return page

    def incref(self, page: int) -> None:
        """Count one owner more."""
        self.owners[page] += 1
        self.free.pop(page, None)

    def release(self, table: list[int]) -> None:
        """Count one owner less of each page, and empty the table. The end of a text is forgotten first.

        ValueError, and nothing is changed, if a page has no owner: its table has been released before.
        """
        if free := sorted({*table} & {*self.free}):
            raise ValueError(f"pages {free} have no owner; expected a table that is not released yet")
        while table:
            page = table.pop()
            self.owners[page] -= 1
            if not self.owners[page]:
                self.free[page] = None

    def publish(
        self, table: Sequence[int], tokens: Sequence[int], start: int, end: int, rows_of: Hashable = None
    ) -> None:
        """Let the pages of a text be found that its tokens from `start` up to `end`, now run, have filled."""
        size = self.page_size
        for i in range(start // size, end // size) if self.sharing else ():
            text = self.holds[table[i - 1]][1] if i else (rows_of,)
            key = text, tuple(tokens[i * size : (i + 1) * size])
            equal = self.found.get(key, ())
            self.found[key] = (*equal, table[i])
            self.holds[table[i]] = key, self.holds[equal[0]][1] if equal else next(self.numbers)
