"""The links that launch notebooks on Colab and Binder, and the notebooks' first code cell.

The repository's address and the version are defined only in pyproject.toml; `stamp.py` copies them to the
files that contain them. On Colab, the notebook and the helpers are loaded from the same git tag, which
`release.py` creates.
"""

from __future__ import annotations

import argparse
import re
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "tools" / "data"
GITHUB = "https://github.com/"
FIRST = "notebooks/00_start_here.ipynb"

# A helpers.py of the reader's own has no `stepper`, and neither has another package named helpers.
BOOTSTRAP = """\
# On Colab only this notebook is there, so fetch its helpers. Elsewhere this cell changes nothing.
import importlib
import subprocess
import sys

try:
    import helpers.stepper
except ImportError:
    source = "git+{github}{repository}@{tag}"
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", source], check=True)
    importlib.invalidate_caches()
    sys.modules.pop("helpers", None)
    import helpers.stepper  # if this fails: rename your own helpers.py, which comes first, and restart"""


def argument_parser(description: str | None) -> argparse.ArgumentParser:
    """Return an argument parser for a command. Its help text keeps the line breaks in `description`."""
    return argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def project_table(root: Path = ROOT) -> dict[str, Any]:
    """Return the [project] table of pyproject.toml."""
    return tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def repository_name(root: Path = ROOT) -> str:
    """Return the owner and the name of the GitHub repository, as "OWNER/NAME"."""
    address: str = project_table(root)["urls"]["Repository"]
    return address.removeprefix(GITHUB)


def version_tag(root: Path = ROOT) -> str:
    """Return the git tag of this version, such as "v0.1.0"."""
    return f"v{project_table(root)['version']}"


def bootstrap_source(root: Path = ROOT) -> str:
    """Return the source of a notebook's first code cell, which installs the helpers on Colab."""
    return BOOTSTRAP.format(github=GITHUB, repository=repository_name(root), tag=version_tag(root))


def raw_url(root: Path = ROOT) -> str:
    """Return the address of this version's files, which the path of a file completes."""
    return f"https://raw.githubusercontent.com/{repository_name(root)}/{version_tag(root)}/"


def imports_helpers(source: str) -> bool:
    """Return whether a cell imports helpers. A notebook without such a cell has no BOOTSTRAP."""
    return bool(re.search(r"^\s*(?:import|from) helpers\b", source, re.MULTILINE))


def colab_url(path: str, root: Path = ROOT) -> str:
    """Return the URL that opens a notebook on Colab. `path` is relative to the root of the repository."""
    return f"https://colab.research.google.com/github/{repository_name(root)}/blob/{version_tag(root)}/{path}"


def binder_url(path: str, root: Path = ROOT) -> str:
    """Return the URL that opens a notebook on Binder. `path` is relative to the root of the repository."""
    return f"https://mybinder.org/v2/gh/{repository_name(root)}/main?urlpath=lab/tree/{path}"


def site_url(root: Path = ROOT) -> str:
    """Return the URL of the published site on GitHub Pages."""
    owner, name = repository_name(root).split("/")
    return f"https://{owner}.github.io/{name}/"


def launch_links(path: str, root: Path = ROOT) -> str:
    """Return the Markdown of the links in a notebook's first cell, to Colab, to Binder and to the glossary.

    They are text links. Badge images would be fetched whenever the notebook is opened, and would be missing
    offline.

    Args:
        path: the notebook's path relative to the root of the repository.
        root: the root of the repository.
    """
    colab, binder = colab_url(path, root), binder_url(path, root)
    return f"run it in [Colab]({colab}) or [Binder]({binder}) · [words](words.ipynb)"


def readme_badges(root: Path = ROOT) -> str:
    """Return the README's badges (tests, Colab and Binder) as Markdown."""
    tests = f"{GITHUB}{repository_name(root)}/actions/workflows/test.yml"
    pictures = {
        "Tests": (f"{tests}/badge.svg", tests),
        "Open in Colab": ("https://colab.research.google.com/assets/colab-badge.svg", colab_url(FIRST, root)),
        "Open in Binder": ("https://mybinder.org/badge_logo.svg", binder_url(FIRST, root)),
    }
    return "\n".join(f"[![{name}]({image})]({target})" for name, (image, target) in pictures.items())
