"""A mixture of experts: in place of one MLP several, and each token passes through a few of them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from helpers.arguments import check_whole
from helpers.model.config import ModelConfig
from helpers.model.transformer import SwiGLU, draw_weights


class Experts(nn.Module):
    """MLPs of which each token chooses its own few; a pass reads those that some token chose, each once.

    Args:
        config: the sizes of one expert.
        n_experts: how many there are.
        n_chosen: through how many each token passes.

    Source: Shazeer et al. 2017, arXiv:1701.06538; softmax over the chosen as in Mixtral, arXiv:2401.04088.
    """

    def __init__(self, config: ModelConfig, n_experts: int = 8, n_chosen: int = 2) -> None:
        super().__init__()
        if check_whole("n_chosen", n_chosen) > check_whole("n_experts", n_experts):
            raise ValueError(f"n_chosen is {n_chosen}; expected at most n_experts, {n_experts}")
        self.n_chosen = n_chosen
        self.router = nn.Linear(config.hidden_size, n_experts, bias=False)
        self.experts = nn.ModuleList(SwiGLU(config) for _ in range(n_experts))
        self.apply(draw_weights)

    def route(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the scores of the experts that each token chooses, and which they are, (B, T, n_chosen)."""
        return self.router(x).topk(self.n_chosen)

    def read_by(self, x: Tensor) -> list[int]:
        """Return the experts that a pass over x, (B, T, C), reads."""
        return self.route(x)[1].unique().tolist()

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C) → (B, T, C), each token by itself."""
        scores, chosen = self.route(x)
        shares, out = scores.softmax(dim=-1), torch.zeros_like(x)
        for n in chosen.unique().tolist():  # an expert that nobody chose is not read
            mine = chosen == n  # (B, T, n_chosen)
            rows = mine.any(dim=-1)  # (B, T)
            out[rows] += shares[mine][:, None] * self.experts[n](x[rows])
        return out
