"""Faster forms of a model's parts, opt-in: the taught model stays as it is.

`share_large(model)` lets the cores share each large matrix. On SmolLM2's shape and two idle cores that was
a fifth less time a token. On cores that are busy with something else it was three to eight times slower,
because the threads wait for each other.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

# Numbers in a matrix from which on sharing pays: below, waking the other cores takes longer than the product.
LARGE = 100_000


class SharedLinear(nn.Linear):
    """Takes over the matrix of a linear layer without bias; x (…, C) → (…, F) as before.

    MKL, which multiplies matrices for PyTorch on Intel's and AMD's processors, gives the product of a single
    row to one core, and one core reads memory at less than half the speed of two. A decode step is made of
    such products, and reading the matrices is its work. In a batch of products each core takes its own: so
    the matrix is seen as a batch of shares, F / shares rows each. Nothing is copied.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__(linear.in_features, linear.out_features, bias=False, device="meta")
        self.weight = linear.weight

    def forward(self, x: Tensor) -> Tensor:
        shares = torch.get_num_threads()
        single = x.numel() == self.in_features and x.dtype == torch.float32 and x.is_cpu
        if not single or shares == 1 or self.out_features % shares:
            return super().forward(x)
        row = x.reshape(1, 1, -1).expand(shares, -1, -1)  # (shares, 1, C)
        matrices = self.weight.unflatten(0, (shares, -1)).transpose(1, 2)  # (shares, C, F / shares)
        return torch.bmm(row, matrices).view(*x.shape[:-1], -1)


def share_large(module: nn.Module) -> None:
    """Replace a model's large linear layers without bias by `SharedLinear`, in place, where MKL is in use."""
    if not torch.backends.mkl.is_available():
        return
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear and child.bias is None and child.weight.numel() >= LARGE:
                setattr(parent, name, SharedLinear(child))
