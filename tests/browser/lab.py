"""A JupyterLab server with temporary settings for the tests, and functions that operate JupyterLab's page."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import nbformat
from playwright.sync_api import Page

FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync "
    "--disable-background-networking --disable-component-update"
).split()
SETTINGS = {
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "notebook-extension/tracker": {"windowingMode": "none", "scrollPastEnd": False},
}
WRONG_OUTPUT = (
    '[data-mime-type="application/vnd.jupyter.error"], [data-mime-type="application/vnd.jupyter.stderr"]'
)


class Lab:
    """A JupyterLab server with the root folder `home`/root, and with separate settings and trusted notebooks.

    It does not open a browser.

    Args:
        home: the folder for the root folder, the settings and the log.
        arguments: command-line arguments for JupyterLab.
    """

    def __init__(self, home: Path, arguments: Sequence[str] = ("--no-browser",)) -> None:
        self.root = home / "root"
        self.root.mkdir(parents=True, exist_ok=True)
        self.log = home / "lab.log"
        for name, value in SETTINGS.items():
            path = home / "settings/@jupyterlab" / f"{name}.jupyterlab-settings"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(value))
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.lost = False  # whether a test took a kernel from its notebook
        self._numbers = itertools.count(1)
        self._process = self._start(home, port, arguments)
        self._wait()

    def _start(self, home: Path, port: int, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
        places = {
            "JUPYTERLAB_SETTINGS_DIR": "settings",
            "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
            "JUPYTER_CONFIG_DIR": "config",
            "JUPYTER_DATA_DIR": "data",  # the trust of notebooks too: nothing here is trusted at first
            "IPYTHONDIR": "ipython",
        }
        env = os.environ | {name: str(home / folder) for name, folder in places.items()} | {"BROWSER": "echo"}
        command = [sys.executable, "-m", "jupyterlab", *arguments, "--allow-root", "--ip=127.0.0.1"]
        command += [f"--port={port}", "--ServerApp.port_retries=0"]
        command += ["--IdentityProvider.token=", "--ServerApp.disable_check_xsrf=True"]
        command += ["--LabApp.expose_app_in_browser=True"]
        with self.log.open("wb") as log:
            return subprocess.Popen(command, env=env, cwd=self.root, stdout=log, stderr=subprocess.STDOUT)

    def _wait(self, seconds: float = 120) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and self._process.poll() is None:
            try:
                urllib.request.urlopen(self.url + "/api/status", timeout=5).close()
                return
            except OSError:
                time.sleep(0.2)
        self.stop()
        raise RuntimeError("JupyterLab did not start:\n" + self.log.read_text(errors="replace")[-3000:])

    def stop(self) -> None:
        """Stop the server and its kernels."""
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(30)

    def put(self, notebook: Path) -> str:
        """Copy a notebook to a new subfolder of the root folder, and return its path relative to the root."""
        folder = self.root / str(next(self._numbers))
        folder.mkdir()
        shutil.copy(notebook, folder)
        return f"{folder.name}/{notebook.name}"

    def write(self, *cells: str, name: str = "made.ipynb") -> str:
        """Write a notebook with these code cells to a new subfolder of the root folder.

        Return its path relative to the root.
        """
        book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in cells])
        book.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
        folder = self.root / str(next(self._numbers))
        folder.mkdir()
        nbformat.write(book, folder / name)
        return f"{folder.name}/{name}"

    def shut_down_kernels(self) -> None:
        """Shut down all kernels, as when the machine is restarted."""
        self.lost = True
        with urllib.request.urlopen(self.url + "/api/kernels") as answer:
            kernels = json.load(answer)
        for kernel in kernels:
            request = urllib.request.Request(f"{self.url}/api/kernels/{kernel['id']}", method="DELETE")
            urllib.request.urlopen(request).close()


def open_notebook(page: Page, lab: Lab, notebook: str, *, dark: bool = False, anew: bool = False) -> None:
    """Open a notebook, and wait until its kernel answers.

    Args:
        page: the page. JupyterLab is loaded if it is not open there.
        lab: the server.
        notebook: the path of the notebook, as `put` or `write` returned it.
        dark: whether to use JupyterLab's dark theme.
        anew: whether to load JupyterLab even if it is open.
    """
    if anew or not page.url.startswith(lab.url):
        page.goto(f"{lab.url}/lab/tree/{notebook}?reset")
    else:
        page.evaluate("(path) => jupyterapp.commands.execute('docmanager:open', { path })", notebook)
    page.wait_for_selector(".jp-NotebookPanel .jp-Cell", timeout=60_000)
    page.wait_for_function("() => window.jupyterapp")
    page.wait_for_function(  # hangs at "Select Kernel" if the notebook names no kernelspec
        """async () => {
          const current = window.jupyterapp.shell.currentWidget;
          await current.context.ready;
          await current.sessionContext.ready;
          await current.sessionContext.session.kernel.info;
          return true;
        }""",
        timeout=60_000,
    )
    theme = "JupyterLab Dark" if dark else "JupyterLab Light"
    page.evaluate(
        """async (theme) => {
          const { commands, shell } = window.jupyterapp;
          await commands.execute('apputils:change-theme', { theme });
          if (!shell.leftCollapsed) await commands.execute('application:toggle-left-area');
        }""",
        theme,
    )


def run_all(page: Page, seconds: float = 120) -> None:
    """Run all cells of the open notebook, and wait until the last one is done."""
    page.evaluate(  # not awaited here: a long evaluate would time out
        """() => {
          const done = () => { window.ranAll = true; };
          window.ranAll = false;
          window.jupyterapp.commands.execute('notebook:run-all-cells').then(done, done);
        }"""
    )
    page.wait_for_function("() => window.ranAll", timeout=seconds * 1000)


def save(page: Page) -> None:
    """Save the open notebook."""
    page.evaluate("async () => { await window.jupyterapp.commands.execute('docmanager:save'); }")


def reopen(page: Page, lab: Lab, notebook: str, *, restarted: bool) -> None:
    """Save the open notebook, and load JupyterLab again.

    If `restarted` is true, all kernels are shut down before. Otherwise the notebook keeps its kernel.
    """
    save(page)
    if restarted:
        lab.shut_down_kernels()
    open_notebook(page, lab, notebook, anew=True)


def close_all(page: Page) -> None:
    """Close all open documents without saving them. If JupyterLab shows a dialog, leave its page instead."""
    page.evaluate(
        """() => {
          if (document.querySelector('.jp-Dialog')) return location.assign('about:blank');
          for (const one of window.jupyterapp ? [...jupyterapp.shell.widgets('main')] : []) {
            if (one.context) one.context.model.dirty = false;
            one.close();
          }
        }"""
    )


def wrong_outputs(page: Page) -> list[str]:
    """Return the texts of the error and stderr outputs in the open notebook."""
    return page.locator(WRONG_OUTPUT).all_inner_texts()
