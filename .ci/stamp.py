"""Write the repository's address everywhere it is used.

    python .ci/stamp.py OWNER/NAME        # change it
    python .ci/stamp.py --check           # change nothing; fail and name what is stale

It stands in one place, pyproject.toml; from there it goes into the README, the badges and the first code
cell of the notebooks.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from check_notebooks import faults
from launch import ROOT, page, readme_badges, repository

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9_.-]+")
STAMPED = ["*.md", "pyproject.toml", ".github/**/*.md", "notebooks/*.ipynb"]
# Where an address of ours can stand. GitHub and its pages have other people's projects too.
OURS = [
    r"colab\.research\.google\.com/github/([\w.-]+/[\w.-]+)",
    r"mybinder\.org/v2/gh/([\w.-]+/[\w.-]+)",
    r"git\+https://github\.com/([\w.-]+/[\w.-]+)",
    r"(?<![\w.-])([\w-]+/watch-it-decode)\b",
]
OUR_PAGE = r"https://[\w-]+\.github\.io/{name}/"


def texts(root: Path) -> Iterator[Path]:
    """Yield the files that the address is written into."""
    for pattern in STAMPED:
        yield from sorted(root.glob(pattern))


def exactly(text: str) -> re.Pattern[str]:
    """Match this text where it is not part of a longer name."""
    return re.compile(rf"(?<![\w-]){re.escape(text)}(?![\w-])")


def stamp(new: str, root: Path = ROOT) -> list[Path]:
    """Replace the address in pyproject.toml and everywhere that it was written to; return what changed."""
    old, old_page = repository(root), page(root)
    owner, name = new.split("/")
    changed = []
    for path in texts(root):
        before = path.read_text(encoding="utf-8")
        after = exactly(old).sub(new, before).replace(old_page, f"https://{owner}.github.io/{name}/")
        if after != before:
            path.write_text(after, encoding="utf-8", newline="\n")
            changed.append(path)
    return changed


def stale(root: Path = ROOT) -> Iterator[str]:
    """Name each place whose address, badge or first cell is not that of pyproject.toml."""
    current, current_page = repository(root), page(root)
    pages = OUR_PAGE.format(name=re.escape(current.split("/")[1]))
    for path in texts(root):
        text = path.read_text(encoding="utf-8")
        others = {found for pattern in OURS for found in re.findall(pattern, text)} - {current}
        others |= set(re.findall(pages, text)) - {current_page}
        for other in sorted(others):
            yield f"{path.relative_to(root)}: {other}, where pyproject.toml has {current}"
    if readme_badges(root) not in (root / "README.md").read_text(encoding="utf-8"):
        yield "README.md: not the badges that .ci/launch.py writes"
    for path in sorted((root / "notebooks").glob("*.ipynb")):
        yield from (f"{path.name}: {fault}" for fault in faults(path, root) if "launch.py" in fault)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("repository", nargs="?", help="OWNER/NAME on GitHub")
    what.add_argument("--check", action="store_true", help="change nothing; fail if something is stale")
    new = parser.parse_args().repository
    if new and not NAME.fullmatch(new):
        parser.error(f"{new!r} is no OWNER/NAME, such as octocat/watch-it-decode")
    for path in stamp(new) if new else []:
        print(f"stamped {path.relative_to(ROOT)}")
    if found := list(stale()):
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main()
