"""The structure of the repository: imports between packages, length of functions, forbidden text."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from importlinter import cli

from tests.machine import ROOT, project_files, prose_of
from tools.launch import site_url


def test_imports_go_in_one_direction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # the contracts stand in pyproject.toml
    assert cli.lint_imports(no_cache=True, no_logo=True) == cli.EXIT_STATUS_SUCCESS


def test_the_package_itself_imports_nothing() -> None:
    tree = ast.parse((ROOT / "helpers/__init__.py").read_text(encoding="utf-8"))
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]


def test_no_function_is_over_60_lines() -> None:
    """Its docstring counts, too."""
    for path in (ROOT / "helpers").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                assert node.end_lineno - node.lineno < 60, f"{path.name}: {node.name}"  # type: ignore[operator]


HYPE = re.compile(
    r"\b(crucial|powerful|delve|dive|unlock\w*|seamless\w*|magic(al)?|simply|game.chang\w+|leverag\w+|robust"
    r"|intricate|fascinating|let's)\b",
    re.IGNORECASE,
)
EMOJI = re.compile("[\U0001f000-\U0001faff\u2600-\u27bf\ufe0f]")
# A folder that is on one machine and on no other.
ONE_MACHINE = re.compile(r"(?<![\w.~/:*-])/(?:home|root|tmp|opt|work|Users|mnt)/\w")
ADDRESS = re.compile(r"https?://([\w-]+(?:\.[\w-]+)+)")

# Among them where a tool of npm's asks for money (package-lock).
KNOWN_HOSTS = """
    arxiv.org colab.research.google.com creativecommons.org developers.openai.com docs.pytorch.org
    docs.gpustack.ai docs.nvidia.com docs.sglang.io docs.vllm.ai download.pytorch.org github.com horace.io
    huggingface.co jalammar.github.io jax-ml.github.io jaykmody.com json-schema.org karpathy.github.io
    llm-d.ai lmsys.org
    machinelearningmastery.com mybinder.org opencollective.com ourarash.github.io platform.claude.com
    pytorch.org raw.githubusercontent.com thinkingmachines.ai www.baseten.co www.w3.org 127.0.0.1
""".split()


def known_hosts() -> set[str]:
    """Return the hosts that an address in the project may have, our own page's among them."""
    return {*KNOWN_HOSTS, *ADDRESS.findall(site_url())}


def forbidden(path: Path) -> Iterator[str]:
    """Name what should not stand in this file."""
    text, prose = path.read_text(encoding="utf-8"), prose_of(path)
    yield from (f"a word that sells: {word.group()}" for word in HYPE.finditer(prose))
    yield from (f"an emoji: {sign.group()!r}" for sign in EMOJI.finditer(prose))
    yield from (f"a place on one machine: {place.group()}" for place in ONE_MACHINE.finditer(text))
    yield from (f"an unknown host: {host}" for host in sorted(set(ADDRESS.findall(text)) - known_hosts()))


BINARY = {".png", ".jpg", ".gif", ".safetensors", ".webm", ".mp4"}


def test_no_file_contains_forbidden_text() -> None:
    texts = [path for path in project_files() if path.suffix not in BINARY]
    assert len(texts) > 20
    here = Path(__file__)
    found = [f"{p.relative_to(ROOT)}: {fault}" for p in texts if p != here for fault in forbidden(p)]
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "This is a powerful idea.",
        "See \U0001f680",
        "open('/home/ann/x')",
        "http://packages.internal.net/simple",
    ],
)
def test_forbidden_text_is_found(tmp_path: Path, text: str) -> None:
    path = tmp_path / "text.md"
    path.write_text(text, encoding="utf-8")
    assert len(list(forbidden(path))) == 1
