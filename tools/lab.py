"""Open the notebooks in JupyterLab. All arguments are passed on to JupyterLab.

python -m tools lab                              # opens notebooks/00_start_here.ipynb
python -m tools lab notebooks/03_decode.ipynb
"""

from __future__ import annotations

import sys

from tools.launch import FIRST, ROOT


def jupyterlab_arguments(arguments: list[str]) -> list[str]:
    """Return JupyterLab's arguments: the option for this project's settings, then `arguments`.

    If `arguments` is empty, the path of the first notebook is used instead.
    """
    return [f"--config={ROOT / 'tools' / 'lab_config.py'}", *(arguments or [str(ROOT / FIRST)])]


def main() -> None:
    from jupyterlab.labapp import LabApp  # takes a second

    LabApp.launch_instance(jupyterlab_arguments(sys.argv[1:]))
