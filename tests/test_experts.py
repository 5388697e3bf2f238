"""A mixture of experts: the sum that it should be, and only those are read that some token chose."""

from __future__ import annotations

import itertools

import pytest
import torch

from helpers.cost.experts import experts_read
from helpers.model.experts import Experts
from tests.tiny import tiny

CONFIG = tiny().config


@pytest.mark.parametrize(("n_experts", "n_chosen"), [(8, 2), (5, 1), (3, 3)])
def test_each_token_is_the_sum_of_its_own_experts_and_no_other_is_read(n_experts: int, n_chosen: int) -> None:
    torch.manual_seed(n_experts)
    block, x = Experts(CONFIG, n_experts, n_chosen).double(), torch.randn(2, 3, CONFIG.hidden_size).double()
    ran: list[int] = []
    for n, expert in enumerate(block.experts):
        expert.register_forward_hook(lambda *_, n=n: ran.append(n))
    out = block(x)
    assert ran == block.read_by(x)
    for token, result in zip(x.flatten(0, 1), out.flatten(0, 1), strict=True):
        scores = block.router(token)
        best = scores.argsort(descending=True)[:n_chosen].tolist()
        shares = scores[best].softmax(dim=0)
        wanted = sum(share * block.experts[n](token) for share, n in zip(shares, best, strict=True))
        torch.testing.assert_close(result, wanted)
        assert set(best) <= set(ran)


def test_the_formula_is_the_mean_over_all_choices() -> None:
    pairs = list(itertools.combinations(range(4), 2))
    for T in (0, 1, 2, 3):
        read = [len({n for pair in chosen for n in pair}) for chosen in itertools.product(pairs, repeat=T)]
        assert experts_read(4, 2, T) == pytest.approx(sum(read) / len(read))
    assert experts_read(3, 3, 1) == 3
    for wrong in (lambda: experts_read(2, 3, 1), lambda: Experts(CONFIG, 2, 3)):
        with pytest.raises(ValueError, match="n_chosen is 3; expected at most n_experts, 2"):
            wrong()
