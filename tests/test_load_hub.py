"""Checkpoints by name: what is fetched from the Hub, and what is said where it cannot be."""

from __future__ import annotations

import hashlib
import http.server
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest
from huggingface_hub.utils import enable_progress_bars

from helpers.model.load import CheckpointError, hub, load
from helpers.model.load.safetensors import INDEX
from tests.test_load import SHARDS, in_three_files, refused
from tests.tiny import tiny


def name_of(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


class Hub(http.server.BaseHTTPRequestHandler):
    """Answers as the Hub does: one folder is someone/tiny; all other names are unknown or gated."""

    folder: Path
    commit = "0123456789abcdef0123456789abcdef01234567"

    def do_GET(self) -> None:
        if "someone/tiny" not in self.path:
            gated = "gated" in self.path
            return self.answer(
                403 if gated else 404, {"X-Error-Code": "GatedRepo" if gated else "RepoNotFound"}
            )
        if self.path.startswith("/api/"):
            return self.answer(200, {"Content-Type": "application/json"}, json.dumps(self.about()).encode())
        body = (self.folder / self.path.rsplit("/", 1)[1]).read_bytes()
        tag = f'"{name_of(body)}"'
        return self.answer(200, {"ETag": tag, "X-Repo-Commit": self.commit}, body)

    def about(self) -> Any:
        """What the Hub tells of a repository, or of the files in it."""
        if "/tree/" not in self.path:
            return {"id": "someone/tiny", "sha": self.commit, "private": False, "tags": [], "siblings": []}
        files = [(path.name, path.read_bytes()) for path in sorted(self.folder.iterdir())]
        return [{"type": "file", "path": name, "size": len(x), "oid": name_of(x)} for name, x in files]

    do_HEAD = do_GET  # noqa: N815

    def answer(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(body))}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def point_at(port: int, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = f"http://127.0.0.1:{port}"
    template = address + "/{repo_id}/resolve/{revision}/{filename}"
    changed = {"ENDPOINT": address, "HUGGINGFACE_CO_URL_TEMPLATE": template, "HF_HUB_CACHE": str(kept)}
    for name, value in changed.items():
        monkeypatch.setattr(huggingface_hub.constants, name, value)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder that a Hub serves; downloads go to `kept` beside it."""
    Hub.folder = in_three_files(tmp_path / "served")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    point_at(server.server_port, tmp_path / "kept", monkeypatch)
    yield Hub.folder
    server.shutdown()
    server.server_close()


def test_by_name_from_the_hub(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    enable_progress_bars()  # notebook 10, run by another test here, switches them off
    beside = ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"]
    beside += ["generation_config.json"]
    for name in ("pytorch_model.bin", *beside):
        (folder / name).write_bytes(b"{}")
    model = load("someone/tiny")
    assert model.config == tiny(hidden_size=36, eos_ids=(2,)).config
    kept = {path.name for path in (tmp_path / "kept").glob("*/snapshots/*/*")}
    assert kept == {"config.json", INDEX, *SHARDS, *beside}, "all that is needed, and no pickle"
    assert "100%" in capfd.readouterr().err  # a progress bar
    point_at(9, tmp_path / "kept", monkeypatch)
    assert load("someone/tiny").config == model.config, "what was fetched serves without a network"


def test_names_that_cannot_be_had(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused("someone/tyni", "'someone/tyni' is no folder here.*the Hub knows no such name")
    refused("someone/gated", "'someone/gated' .*accept terms first")
    for name in ("../tiny", "a/b/c", "someone/", "/tiny", "some one/tiny", "-/tiny"):
        refused(name, "there is no folder")
    point_at(9, folder.parent / "empty", monkeypatch)
    refused("someone/tiny", r"the Hub could not be read .*: check the network, or pass a folder")


def test_a_server_that_never_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        point_at(server.getsockname()[1], tmp_path, monkeypatch)
        start = time.perf_counter()
        monkeypatch.setattr(hub, "TIMEOUT", 0.5)
        with pytest.raises(CheckpointError, match=r"the Hub could not be read \(timed out\)"):
            hub.download("someone/tiny")
        assert time.perf_counter() - start < 20
