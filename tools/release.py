"""Tag the version of pyproject.toml, which Colab's first cell installs: `python -m tools release`.

Only a clean tree is tagged, whose stamps are current, CHANGELOG.md names the version and tests pass.
Nothing is pushed: the last line says how.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tools.launch import ROOT, parser, tag
from tools.stamp import stale


def git(root: Path, *words: str) -> str:
    """Return what git says of this repository."""
    return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True).stdout


def obstacles(root: Path = ROOT) -> Iterator[str]:
    """Say what stands in the way of a tag, but for the tests."""
    yield from (f"not committed: {line}" for line in git(root, "status", "--porcelain").splitlines())
    if git(root, "tag", "--list", tag(root)):
        yield f"{tag(root)} is there: raise the version in pyproject.toml, run tools/stamp.py, commit"
    if f"## {tag(root).removeprefix('v')}" not in (root / "CHANGELOG.md").read_text(encoding="utf-8"):
        yield f"CHANGELOG.md says nothing of {tag(root)}"
    yield from stale(root)


def main() -> None:
    parser(__doc__).parse_args()
    if found := list(obstacles()):
        sys.exit("\n".join(found))
    if subprocess.run([sys.executable, "-m", "pytest"], cwd=ROOT).returncode:
        sys.exit("the tests fail: nothing is tagged")
    git(ROOT, "tag", "--annotate", "--message", tag(), tag())
    print(f"tagged {tag()}; publish it: git push origin HEAD {tag()}")
