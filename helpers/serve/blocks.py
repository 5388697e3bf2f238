"""Which page belongs to whom: a free list, owners counted, and full pages found again by what is in them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from helpers.arguments import check_whole


class Blocks:
    """The pages of a pool, by number. The rows themselves are elsewhere.

    A page has as many owners as there are tables that it stands in. A page without owners is free; what lies
    in it stays until somebody takes it, and the page that has been free longest is taken first. A page that
    is full and written can be found: by a hash of its tokens chained to the hash of those before, *and* by
    comparing all of these tokens. Nobody writes to a full page, so it never has to be copied.

    Args:
        n_blocks: pages in the pool.
        size: rows in a page.
        sharing: whether pages are found again.
        digest: the hash.
    """

    def __init__(
        self, n_blocks: int, size: int = 16, *, sharing: bool = True, digest: Callable[..., Hashable] = hash
    ) -> None:
        self.n_blocks, self.size = check_whole("n_blocks", n_blocks), check_whole("size", size)
        self.sharing, self.digest = sharing, digest
        self.owners = [0] * n_blocks
        self.free = dict.fromkeys(range(n_blocks))  # ordered: the first has been free longest
        self.found: dict[Hashable, int] = {}  # block by the hash of its tokens and all before
        self.holds: dict[int, tuple[Hashable, list[int]]] = {}  # that hash, and all those tokens, by block

    def needed(self, n_tokens: int) -> int:
        """Return how many pages so many tokens take."""
        return -(-n_tokens // self.size)

    def take(self) -> int:
        """Take the page that has been free longest; what lay in it is lost. The caller knows there is one."""
        block = next(iter(self.free))
        if block in self.holds:
            del self.found[self.holds.pop(block)[0]]
        self.own(block)
        return block

    def own(self, block: int) -> None:
        """Count one owner more."""
        self.owners[block] += 1
        self.free.pop(block, None)

    def release(self, table: list[int]) -> None:
        """Count one owner less of each page, and empty the table. The end of a text is forgotten first."""
        while table:
            block = table.pop()
            self.owners[block] -= 1
            if not self.owners[block]:
                self.free[block] = None

    def share(self, tokens: Sequence[int]) -> list[int]:
        """Own and return the pages that hold the beginning of a text, full pages only.

        The last token is left to run, even if all are found: a page holds rows and no logits.
        """
        table: list[int] = []
        for key, before in self.keys(tokens[:-1]):
            block = self.found.get(key)
            if block is None or self.holds[block][1] != before:
                break
            self.own(block)
            table.append(block)
        return table

    def written(self, table: Sequence[int], tokens: Sequence[int]) -> None:
        """Let the full pages of a text be found; the tokens are those whose rows are written."""
        for block, (key, before) in zip(table, self.keys(tokens), strict=False):
            if key not in self.found and block not in self.holds:
                self.found[key], self.holds[block] = block, (key, before)

    def keys(self, tokens: Sequence[int]) -> list[tuple[Hashable, list[int]]]:
        """Return the hash of each full page, chained, and all tokens to its end."""
        pairs: list[tuple[Hashable, list[int]]] = []
        key: Hashable = None
        for end in range(self.size, len(tokens) + 1, self.size) if self.sharing else ():
            key = self.digest((key, *tokens[end - self.size : end]))
            pairs.append((key, list(tokens[:end])))
        return pairs
