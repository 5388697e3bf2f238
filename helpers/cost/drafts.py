"""What speculation gives and costs: words a pass, and the time of a round, as shares of a pass of one word.

Source: Leviathan et al. 2022, arXiv:2211.17192.
"""

from __future__ import annotations

from collections.abc import Callable

from helpers.arguments import check_whole, is_number

Cost = Callable[[int], float]


def times_as_fast(alpha: float, k: int, draft: float, verify: Cost) -> float:
    """Return how many times as fast as word by word a reply is: words a pass over what a round costs.

    A pass gives 1 to k + 1 words: the drafted ones that are taken, and one of the model's own.

    Args:
        alpha: the chance that a drafted word is taken if all before it were, 0 to 1, the same for each.
        k: words drafted.
        draft: the time of a drafted word, as a share of a pass of one word.
        verify: gives the time of a pass over so many words, as a multiple of a pass of one.
    """
    check_share(alpha)
    check_whole("k", k, least=0)
    words = sum(alpha**n for n in range(k + 1))  # (1 - alpha^(k+1)) / (1 - alpha), and k + 1 where alpha is 1
    return words / (k * draft + verify(k + 1))


def check_share(alpha: float) -> None:
    """Raise ValueError unless it is a number from 0 to 1."""
    if not is_number(alpha) or not 0 <= alpha <= 1:
        raise ValueError(f"alpha is {alpha!r}; expected a share, 0 to 1")
