"""Copy the repository's address and the version from pyproject.toml to all files that contain them.

    python -m tools stamp OWNER/NAME        # also change the address, in pyproject.toml and everywhere else
    python -m tools stamp                   # after a change in pyproject.toml, such as a new version
    python -m tools stamp --check           # change no file; list the files that are not current, and fail

These files are the README and other Markdown files, CITATION.cff, and the notebooks, where the badges, the
first code cell and the addresses of fetched files are changed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat

from tools.check import code_cells
from tools.launch import (
    ROOT,
    argument_parser,
    bootstrap_source,
    imports_helpers,
    launch_links,
    project_table,
    raw_url,
    readme_badges,
    repository_name,
    site_url,
)

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9_.-]+")
STAMPED = ["pyproject.toml", "*.md", "CITATION.cff", ".github/**/*.md", "notebooks/*.ipynb"]
BADGES = re.compile(r"run it in \[Colab\]\(\S+\) or \[Binder\]\(\S+\)(?: · \[words\]\(\S+\))?")
RAW = re.compile(r"https://raw\.githubusercontent\.com/[^/]+/[^/]+/v[^/]+/")
README_BADGES = re.compile(r"^\[!\[Tests\].*\n.*\n.*$", re.MULTILINE)
CITED = re.compile(r"^version: .*$", re.MULTILINE)


def stamped_files(root: Path) -> Iterator[Path]:
    """Yield the paths of the files that may contain the address or the version, pyproject.toml first."""
    for pattern in STAMPED:
        yield from sorted(root.glob(pattern))


def with_current_stamps(path: Path, text: str, root: Path) -> str:
    """Return the content of a file with current badges, first code cell and version.

    Args:
        path: the path of the file.
        text: the content of the file.
        root: the root of the repository.
    """
    if path.suffix == ".ipynb":
        book = nbformat.reads(text, as_version=4)
        for first in filter(lambda cell: imports_helpers(cell.source), code_cells(book)[:1]):
            first.source = bootstrap_source(root)
        links = launch_links(f"notebooks/{path.name}", root)
        for cell in book.cells:
            cell.source = RAW.sub(raw_url(root), BADGES.sub(links, cell.source))
        return nbformat.writes(book) + "\n"
    if path.suffix == ".cff":
        return CITED.sub(f"version: {project_table(root)['version']}", text)
    return README_BADGES.sub(readme_badges(root), text)


def write_stamps(repository: str, root: Path = ROOT) -> list[Path]:
    """Write the repository's new address and the current version to all files that contain them.

    Args:
        repository: the new address on GitHub, as "OWNER/NAME".
        root: the root of the repository.

    Returns:
        The paths of the changed files.
    """
    old_page = site_url(root)
    old = re.compile(rf"(?<![\w-]){re.escape(repository_name(root))}(?![\w-])")
    owner, name = repository.split("/")
    changed = []
    for path in stamped_files(root):
        before = path.read_text(encoding="utf-8")
        after = old.sub(repository, before).replace(old_page, f"https://{owner}.github.io/{name}/")
        after = with_current_stamps(path, after, root)
        if after != before:
            path.write_text(after, encoding="utf-8", newline="\n")
            changed.append(path)
    return changed


def stale_files(root: Path = ROOT) -> Iterator[str]:
    """Yield one sentence for each file whose badges, first code cell or version are not current."""
    for path in stamped_files(root):
        if with_current_stamps(path, text := path.read_text(encoding="utf-8"), root) != text:
            yield f"{path.relative_to(root)}: not what `python -m tools stamp` writes"


def main() -> None:
    arguments = argument_parser(__doc__)
    mode = arguments.add_mutually_exclusive_group()
    mode.add_argument("repository", nargs="?", default=repository_name(), help="OWNER/NAME on GitHub")
    mode.add_argument("--check", action="store_true", help="change nothing; fail if something is stale")
    options = arguments.parse_args()
    if not NAME.fullmatch(options.repository):
        arguments.error(f"got {options.repository!r}; expected OWNER/NAME, such as octocat/watch-it-decode")
    for path in [] if options.check else write_stamps(options.repository):
        print(f"stamped {path.relative_to(ROOT)}")
    if messages := list(stale_files()):
        sys.exit("\n".join(messages))
