"""Checkpoints by name: what is asked of the Hub, and what is said where it cannot be had."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import errors
from huggingface_hub.utils import filter_repo_objects

from helpers.model.load import hub, load
from tests.test_load import SHARDS, in_three_files, refused


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What is asked of a Hub that serves one folder; `raises` among it is what it raises first."""
    asked: dict[str, Any] = {"raises": None, "folder": in_three_files(tmp_path)}

    def model_info(_: Any, name: str, timeout: float) -> None:
        asked["timeout"] = timeout
        if asked["raises"]:
            raise asked["raises"]

    def snapshot_download(name: str, **settings: Any) -> str:
        asked.update(settings, name=name)
        return str(asked["folder"])

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", model_info)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    return asked


def test_all_that_is_needed_is_fetched_and_no_pickle(asked: dict[str, Any]) -> None:
    needed = ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"]
    needed += ["generation_config.json", "config.json", "model.safetensors.index.json", *SHARDS]
    assert load("someone/tiny").config == load(asked["folder"]).config
    assert (asked["name"], asked["timeout"], asked["local_files_only"]) == (
        "someone/tiny",
        hub.TIMEOUT,
        False,
    )
    there = [*needed, "pytorch_model.bin", "model.pth", "README.md"]
    assert [*filter_repo_objects(there, allow_patterns=asked["allow_patterns"])] == needed
    asked["raises"] = OSError("timed out")  # what was fetched before serves without a network
    load("someone/tiny")
    assert asked["local_files_only"]


def test_names_that_cannot_be_had(asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def not_here(*_: Any, **__: Any) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(huggingface_hub, "snapshot_download", not_here)
    for kind, message in (
        (errors.RepositoryNotFoundError, "the Hub knows no such name"),
        (errors.GatedRepoError, "accept terms first"),
    ):
        asked["raises"] = kind.__new__(kind)  # made of a response otherwise
        refused("someone/tiny", f"'someone/tiny' is no folder here.*{message}")
    asked["raises"] = OSError("timed out")
    refused("someone/tiny", r"the Hub could not be read \(timed out\): check the network, or pass a folder")
    for name in ("../tiny", "a/b/c", "someone/", "/tiny", "some one/tiny", "-/tiny"):
        refused(name, "there is no folder")
