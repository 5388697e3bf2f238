"""Create the git tag for the version in pyproject.toml: `python -m tools release`.

On Colab, the first cell of each notebook installs the helpers from this tag. The tag is created only if the
working tree is clean, the stamps (see stamp.py) are current, CHANGELOG.md has a section on the version, and
the tests pass. Nothing is pushed; the last line of the output says how to push.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tools.launch import ROOT, argument_parser, version_tag
from tools.stamp import stale_files


def git_output(root: Path, *arguments: str) -> str:
    """Run git with these arguments in the repository at `root`, and return what it writes to stdout."""
    return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True).stdout


def reasons_not_to_tag(root: Path = ROOT) -> Iterator[str]:
    """Yield one sentence for each reason not to tag this version. The tests are not run here."""
    yield from (f"not committed: {line}" for line in git_output(root, "status", "--porcelain").splitlines())
    if git_output(root, "tag", "--list", version_tag(root)):
        yield f"{version_tag(root)} exists: raise the version in pyproject.toml, run tools/stamp.py, commit"
    if f"## {version_tag(root).removeprefix('v')}" not in (root / "CHANGELOG.md").read_text(encoding="utf-8"):
        yield f"CHANGELOG.md has no section on {version_tag(root)}"
    yield from stale_files(root)


def main() -> None:
    argument_parser(__doc__).parse_args()
    if reasons := list(reasons_not_to_tag()):
        sys.exit("\n".join(reasons))
    if subprocess.run([sys.executable, "-m", "pytest"], cwd=ROOT).returncode:
        sys.exit("the tests fail; nothing was tagged")
    git_output(ROOT, "tag", "--annotate", "--message", version_tag(), version_tag())
    print(f"tagged {version_tag()}; publish it: git push origin HEAD {version_tag()}")
