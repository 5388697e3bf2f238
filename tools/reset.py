"""Put a notebook back as it came, by the beginning of its name: `python -m tools reset 03`.

Yours stays beside it, with the time in its name. How the notebooks came is kept in `fresh/`, which opens in
Lab: as git has them or, where there is no git, as they stood when Lab was first started here.
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
    """Put the notebooks as they came into `fresh/`, to be read and not saved.

    `as_they_stand`: where git has none and none are kept, take those that are there.
    """
    fresh, known = root / "fresh", b""
    if (root / ".git").exists() and (git := shutil.which("git")):
        command = [git, "archive", "--format=zip", "HEAD:notebooks"]
        known = subprocess.run(command, cwd=root, capture_output=True).stdout
    if not known and (fresh.exists() or not as_they_stand):
        return
    for path in fresh.glob("*.ipynb"):
        path.chmod(0o644)  # else Windows deletes none
        path.unlink()
    if known:
        zipfile.ZipFile(io.BytesIO(known)).extractall(fresh)
    else:
        shutil.copytree(root / "notebooks", fresh, ignore=shutil.ignore_patterns(".*", "solved.txt"))
    for path in fresh.glob("*.ipynb"):
        path.chmod(0o444)


def reset(name: str, root: Path = ROOT) -> list[str]:
    """Put the notebooks whose names begin so back as they came; return a sentence for each.

    Raises:
        FileNotFoundError: none begins so, or nothing is kept.
    """
    keep(root, as_they_stand=False)
    kept, done = sorted(root.glob("fresh/*.ipynb")), []
    if not kept:
        raise FileNotFoundError(
            "no copy is kept: git has none here, and Lab was never started as README.md says. "
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
