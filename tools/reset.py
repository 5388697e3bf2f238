"""Restore a notebook, given the beginning of its name: `python -m tools reset 03`.

Your version is kept next to it, with the time in its name. The original notebooks are in `fresh/`, which can
be opened in JupyterLab. They are those that git has or, without git, those that existed when `python -m tools
lab` was first run.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import zipfile
from datetime import datetime
from pathlib import Path

from tools.launch import GITHUB, ROOT, argument_parser, repository_name, version_tag


def save_originals(root: Path = ROOT, or_current: bool = True) -> None:
    """Save the original notebooks, which are those of git's HEAD, to `fresh/` as read-only files.

    Files that were saved before are replaced.

    Args:
        root: the root of the repository.
        or_current: whether to save the current notebooks if git has no originals and `fresh/` does not
            exist.
    """
    fresh, known = root / "fresh", b""
    if (root / ".git").exists() and (git := shutil.which("git")):
        command = [git, "archive", "--format=zip", "HEAD:notebooks"]
        known = subprocess.run(command, cwd=root, capture_output=True).stdout
    if not known and (fresh.exists() or not or_current):
        return
    for path in fresh.glob("*.ipynb"):
        path.chmod(0o644)  # Windows does not delete read-only files
        path.unlink()
    if known:
        zipfile.ZipFile(io.BytesIO(known)).extractall(fresh)
    else:
        shutil.copytree(root / "notebooks", fresh, ignore=shutil.ignore_patterns(".*", "solved.txt"))
    for path in fresh.glob("*.ipynb"):
        path.chmod(0o444)


def restore_notebooks(beginning: str, root: Path = ROOT) -> list[str]:
    """Restore the notebooks whose names begin with `beginning`, and return a sentence for each.

    Raises:
        FileNotFoundError: no notebook has such a name, or no originals are saved.
    """
    save_originals(root, or_current=False)
    kept, done = sorted(root.glob("fresh/*.ipynb")), []
    if not kept:
        raise FileNotFoundError(
            "no original is kept: git has none here, and `python -m tools lab` was never run. "
            f"Download it from {GITHUB}{repository_name()}/tree/{version_tag()}/notebooks"
        )
    for path in (path for path in kept if path.name.startswith(beginning)):
        here = root / "notebooks" / path.name
        done.append(f"{path.name} is as it came.")
        if here.exists() and here.read_bytes() != path.read_bytes():
            yours = here.with_stem(f"{here.stem}_{datetime.now():%Y-%m-%d_%H-%M-%S}")
            here.rename(yours)
            done[-1] += f" Yours is {yours.name}; in Lab, close the page and open it again."
        shutil.copyfile(path, here)
    if not done:
        raise FileNotFoundError(
            f"no name begins with {beginning!r}; there are: {[path.stem for path in kept]}"
        )
    return done


def main() -> None:
    arguments = argument_parser(__doc__)
    arguments.add_argument("name", help="the beginning of the notebook's file name")
    try:
        print("\n".join(restore_notebooks(arguments.parse_args().name)))
    except FileNotFoundError as error:
        sys.exit(str(error))
