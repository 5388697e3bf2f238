"""The adapter of the museum: a small change of the weights that make keys."""

from __future__ import annotations

import pytest

from helpers.model.adapter import with_adapter
from tests.tiny import tiny


def test_adapter_changes_keys_only() -> None:
    model = tiny().requires_grad_(False)
    for (name, old), new in zip(model.named_parameters(), with_adapter(model).parameters(), strict=True):
        ratio = float((new - old).norm() / old.norm())
        assert ratio == pytest.approx(float("k_proj.weight" in name))
