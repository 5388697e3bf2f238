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

from tools.launch import GITHUB, ROOT, parser, repository, tag


def keep(root: Path = ROOT, as_they_stand: bool = True) -> None:
    """Save the original notebooks (those of git's HEAD) to `fresh/` as read-only files, replacing any saved
    before.

    Args:
        as_they_stand: if git has no originals and `fresh/` does not exist, save the current notebooks
            instead; if False, do nothing in that case.
    """
    fresh, known = root / "fresh", b""
    if (root / ".git").exists() and (git := shutil.which("git")):
        command = [git, "archive", "--format=zip", "HEAD:notebooks"]
        known = subprocess.run(command, cwd=root, capture_output=True).stdout
    if not known and (fresh.exists() or not as_they_stand):
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


def reset(name: str, root: Path = ROOT) -> list[str]:
    """Restore the notebooks whose names begin with `name`, and return a sentence for each.

    Raises:
        FileNotFoundError: no notebook has such a name, or no originals are saved.
    """
    keep(root, as_they_stand=False)
    kept, done = sorted(root.glob("fresh/*.ipynb")), []
    if not kept:
        raise FileNotFoundError(
            "no original is kept: git has none here, and `python -m tools lab` was never run. "
            f"Download it from {GITHUB}{repository()}/tree/{tag()}/notebooks"
        )
    for path in (path for path in kept if path.name.startswith(name)):
        here = root / "notebooks" / path.name
        done.append(f"{path.name} is as it came.")
        if here.exists() and here.read_bytes() != path.read_bytes():
            yours = here.with_stem(f"{here.stem}_{datetime.now():%Y-%m-%d_%H-%M-%S}")
            here.rename(yours)
            done[-1] += f" Yours is {yours.name}; in Lab, close the page and open it again."
        shutil.copyfile(path, here)
    if not done:
        raise FileNotFoundError(f"no name begins with {name!r}; there are: {[path.stem for path in kept]}")
    return done


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("name", help="the beginning of the notebook's file name")
    try:
        print("\n".join(reset(arguments.parse_args().name)))
    except FileNotFoundError as error:
        sys.exit(str(error))
