"""The notebook tests: pytest runs each notebook in one kernel, offline, in an empty folder.

nbval compares the output of each cell with the stored output. Each cell is then run again, and must give the
same output; so no cell changes what it depends on. Additional cells run in the same kernel. They check that
the text below a guess begins with its answer, that nothing can connect to other machines, and that the check
of each exercise gives the expected messages.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from nbformat.v4 import new_code_cell, new_output
from nbval.plugin import IPyNbCell, IPyNbFile

from tests.exercises import exercise_sources, guessed
from tests.machine import ROOT

# Run by every Python that finds it, so by the processes that a kernel starts as well.
OFFLINE = '''
import sys


def offline(event, args):
    """Raise for whatever would leave this machine; a str is the path of a local socket."""
    if event in ("socket.connect", "socket.sendto"):
        host = args[1][0] if isinstance(args[1], tuple) else "localhost"
    elif event in ("socket.getaddrinfo", "socket.gethostbyname"):
        host = args[0] or "localhost"
    else:
        return
    if str(host) not in ("localhost", "::1") and not str(host).startswith("127."):
        raise OSError(f"the network is out of reach: {host}")


sys.addaudithook(offline)
sys.modules["rfc3987_syntax"] = None  # as in tests/early.py: a kernel that asks reads notebooks, too
'''
ASK_THE_NETWORK = """\
import socket
for host in ("192.0.2.1", "nowhere.invalid"):
    try:
        print(socket.create_connection((host, 80), timeout=1))
    except OSError as error:
        print(error)"""
REFUSED = "the network is out of reach: 192.0.2.1\nthe network is out of reach: nowhere.invalid\n"
FOLDERS = shutil.ignore_patterns(*"hybrid mha mla mqa state".split())  # of smaller models
NOT_AGAIN = {"slow", "nbval-ignore-output"}  # tags of cells that take long, or whose outputs nothing compares
ASK_AN_EXERCISE = """\
import sys
sys.path.insert(0, {root!r})
from tests.exercises import keep_promises
keep_promises({path!r}, {name!r}, globals())"""
ASK_A_GUESS = """\
__import__("sys").path.insert(0, {root!r})
__import__("tests.exercises").exercises.check_guess(get_ipython().displayhook._, {text!r})"""


class Notebook(IPyNbFile):
    """A pytest collector for a notebook: its cells, and additional cells that check guesses and exercises."""

    def setup(self) -> None:
        """Start the kernel in an empty folder, offline; a page that imports nothing finds the weights."""
        self.folder = tempfile.TemporaryDirectory()
        site, elsewhere = Path(self.folder.name, "site"), Path(self.folder.name, "elsewhere")
        site.mkdir()
        elsewhere.mkdir()
        shutil.copytree(ROOT / "helpers/weights", Path(self.folder.name, "helpers/weights"), ignore=FOLDERS)
        (site / "sitecustomize.py").write_text(OFFLINE)
        beside = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", os.pathsep.join(beside))
            patch.setattr(self, "path", elsewhere / self.path.name)  # nbval starts a kernel beside this
            super().setup()

    def collect(self) -> Iterator[IPyNbCell]:
        """Yield each of nbval's cells, the same cell to be run again, and the additional cells."""
        guesses, n = guessed(self.path), 0
        for n, cell in enumerate(super().collect(), 1):
            yield cell
            if not NOT_AGAIN & {*cell.cell.metadata.get("tags", [])}:
                yield IPyNbCell.from_parent(
                    self, name=f"{cell.name} again", cell_num=n - 1, cell=cell.cell, options=cell.options
                )
            if text := guesses.get(cell.cell.source):
                yield self.asking(f"guess {n}", n, ASK_A_GUESS.format(root=str(ROOT), text=text))
        refused = [new_output("stream", name="stdout", text=REFUSED)]
        yield self.asking("offline", n, ASK_THE_NETWORK, refused)
        for name in exercise_sources(self.path):
            source = ASK_AN_EXERCISE.format(root=str(ROOT), path=str(self.path), name=name)
            yield self.asking(f"exercise {name}", n, source)

    def asking(self, name: str, n: int, source: str, outputs: Sequence[Any] = ()) -> IPyNbCell:
        """Return an additional cell, which is not in the notebook, with the outputs that it must have."""
        cell = new_code_cell(source, execution_count=1, outputs=[*outputs])
        options = defaultdict(bool, check=True)
        return IPyNbCell.from_parent(self, name=name, cell_num=n, cell=cell, options=options)

    def teardown(self) -> None:
        super().teardown()
        self.folder.cleanup()
