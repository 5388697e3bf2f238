"""Tag the version in pyproject.toml, which Colab's first cell installs: `python -m tools release`.

Conditions: the working tree is clean, the stamps are current, CHANGELOG.md has the version, and the tests
pass. Nothing is pushed; the last line of the output says how to push.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tools.launch import ROOT, parser, tag
from tools.stamp import stale


def git(root: Path, *words: str) -> str:
    """Run a git command in this repository, and return its output."""
    return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True).stdout


def obstacles(root: Path = ROOT) -> Iterator[str]:
    """Yield a sentence for each reason not to tag this version. Tests are not run."""
    yield from (f"not committed: {line}" for line in git(root, "status", "--porcelain").splitlines())
    if git(root, "tag", "--list", tag(root)):
        yield f"{tag(root)} exists: raise the version in pyproject.toml, run tools/stamp.py, commit"
    if f"## {tag(root).removeprefix('v')}" not in (root / "CHANGELOG.md").read_text(encoding="utf-8"):
        yield f"CHANGELOG.md has no section on {tag(root)}"
    yield from stale(root)


def main() -> None:
    parser(__doc__).parse_args()
    if reasons := list(obstacles()):
        sys.exit("\n".join(reasons))
    if subprocess.run([sys.executable, "-m", "pytest"], cwd=ROOT).returncode:
        sys.exit("the tests fail; nothing was tagged")
    git(ROOT, "tag", "--annotate", "--message", tag(), tag())
    print(f"tagged {tag()}; publish it: git push origin HEAD {tag()}")
