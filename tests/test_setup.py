"""The ways in: README's commands, Binder, Colab, the lowest versions, another directory, no network.

The slow ones make a virtual environment and need PyPI (marker `pypi`).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import nbformat
import pytest

from tests.machine import NOTEBOOKS, ROOT, find_chromium, lacking, project_files
from tools.check import code_cells, output_errors
from tools.launch import GITHUB, bootstrap_source, repository_name, version_tag
from tools.notebooks import execute_notebook
from tools.release import reasons_not_to_tag


def run(*command: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    """Run a command; return what it printed, or fail with it."""
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def environment(folder: Path, python: str, *install: str) -> Path:
    """Make a virtual environment with pip and these requirements; return its python."""
    result = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    uv = (sys.executable, "-m", "uv", "--quiet")
    run(*uv, "venv", "--seed", "--python", python, folder, cwd=folder.parent)
    run(*uv, "pip", "install", "--python", result, *install, cwd=folder.parent)
    return result


def without(env: Mapping[str, str], *names: str) -> dict[str, str]:
    """Return the environment variables but these."""
    return {name: value for name, value in env.items() if name not in names}


def test_ci_runs_the_command_of_the_readme(tmp_path: Path) -> None:
    """`.ci/run` takes its command from the README, word for word, with CI=true, and fails when it fails."""
    shutil.copytree(ROOT / ".ci", tmp_path / ".ci")
    shutil.copy(ROOT / "README.md", tmp_path)
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("chromium", "git", "npm", "python3"):
        (tools / name).write_text(
            '#!/bin/sh\n[ "$1" = -c ] || [ "$1" = ci ] && exit 0\necho "CI=$CI $0 $*"; exit 7\n'
        )
        (tools / name).chmod(0o755)
    env = os.environ | {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run([tmp_path / ".ci/run"], env=env, capture_output=True, text=True)
    command, ran = done.stdout.splitlines()
    assert f"```sh\n{command}\n```" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert ran == f"CI=true {tools}/python3 -m venv .venv"
    assert done.returncode == 7


def test_tests_use_an_empty_model_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """So it passes on a fresh machine, too: not because of what was fetched on this one."""
    from huggingface_hub.constants import HF_HUB_CACHE

    from helpers.model import published  # with PyTorch

    for place in (published.cached_gguf_path(), Path(HF_HUB_CACHE)):
        assert re.match(r"watch-it-decode-\w+/", place.relative_to(tempfile.gettempdir()).as_posix())
    monkeypatch.setenv(published.OFFLINE_VARIABLE, "1")
    assert published.find_published() is None


def test_missing_chromium_skips_or_fails_in_ci(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What browser tests lack is said: they are skipped on a reader's machine, and fail in CI."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path))
    assert find_chromium.__wrapped__() is None
    for ci, outcome in (("", pytest.skip.Exception), ("true", pytest.fail.Exception)):
        monkeypatch.setenv("CI", ci)
        with pytest.raises((pytest.skip.Exception, pytest.fail.Exception), match="no Chromium") as raised:
            lacking("no Chromium here")
        assert raised.type is outcome


def test_binder_image_installs_the_package() -> None:
    """The Dockerfile that repo2docker prints: Python, the CPU build of torch, this package, the notebooks."""
    options = ["--no-build", "--user-id=1000", "--user-name=jo"]
    dockerfile = run(sys.executable, "-m", "repo2docker", *options, ".", cwd=ROOT)
    assert "environment-2epy-2d3-2e11-" in dockerfile, "the locked environment of Python 3.11"
    copied = dockerfile.partition("COPY --chown=1000:1000 src/ ${REPO_DIR}/")[2]
    after = re.findall(r"^RUN (.*)$", copied, re.MULTILINE)
    assert after == ['${KERNEL_PYTHON_PREFIX}/bin/pip install --no-cache-dir -r "binder/requirements.txt"'], (
        "after the whole repository has been copied, notebooks and all, only this runs, in its root"
    )
    wanted = (ROOT / "binder/requirements.txt").read_text().splitlines()
    assert "--extra-index-url https://download.pytorch.org/whl/cpu" in wanted
    assert "-r ../requirements.txt" in wanted
    own = (ROOT / "requirements.txt").read_text().splitlines()
    assert "-e ." in own, "the package itself"
    assert "torch==2.13.0" in own, "a release that the CPU index has as 2.13.0+cpu, which pip prefers"
    assert not [line for line in own if "index" in line], "a reader's pip asks no second index"


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A git repository with the project's files as they are now."""
    folder = tmp_path_factory.mktemp("clone")
    for path in project_files():
        copy = folder / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    identity = ["-c", "user.name=Test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false"]
    run("git", "init", "-q", cwd=folder)
    run("git", "add", "-A", "-f", cwd=folder)
    run("git", *identity, "commit", "-q", "-m", "As it is", cwd=folder)
    run("git", *identity, "tag", version_tag(), cwd=folder)
    return folder


def test_a_foreign_helpers_module_is_not_imported(tmp_path: Path) -> None:
    """The tag is installed, and where that module comes first all the same the error says what to do."""
    (tmp_path / "helpers.py").write_text("")
    (tmp_path / "pip.py").write_text("import sys; print(sys.argv)")  # in place of pip
    (tmp_path / "cell.py").write_text(bootstrap_source())
    command = [sys.executable, "cell.py"]
    done = subprocess.run(
        command, cwd=tmp_path, env=without(os.environ, "PYTHONPATH"), capture_output=True, text=True
    )
    assert f"git+{GITHUB}{repository_name()}@{version_tag()}" in done.stdout
    assert "rename your own helpers.py" in done.stderr


def test_release_needs_clean_tree_changelog_and_new_version(clone: Path) -> None:
    (message,) = reasons_not_to_tag(clone)
    assert (
        message == f"{version_tag()} exists: raise the version in pyproject.toml, run tools/stamp.py, commit"
    )
    changes = clone / "CHANGELOG.md"
    before = changes.read_text(encoding="utf-8")
    changes.write_text("# Changes\n")
    assert [line.split()[0] for line in reasons_not_to_tag(clone)] == ["not", version_tag(), "CHANGELOG.md"]
    changes.write_text(before, encoding="utf-8")


def use_kernel(python: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let notebooks run with this python: its kernel has the usual name, where Jupyter looks first."""
    argv = [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    kernel = folder / "kernels/python3/kernel.json"
    kernel.parent.mkdir(parents=True)
    kernel.write_text(json.dumps({"argv": argv, "display_name": "Another", "language": "python"}))
    monkeypatch.setenv("JUPYTER_PATH", str(folder))


@pytest.mark.pypi
def test_a_notebook_runs_on_colab(
    pypi: None, clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only 01's file arrives; its first cell, unchanged, fetches the helpers, and every cell runs."""
    python = environment(tmp_path / "colab", sys.executable, "-r", str(ROOT / "tests/colab.txt"))
    content = tmp_path / "content"
    content.mkdir()
    shutil.copy(NOTEBOOKS[1], content)
    use_kernel(python, tmp_path, monkeypatch)
    env = without(os.environ, "PYTHONPATH") | {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.{clone.as_uri()}.insteadOf",
        "GIT_CONFIG_VALUE_0": f"{GITHUB}{repository_name()}",
    }
    book = nbformat.read(content / NOTEBOOKS[1].name, as_version=4)
    assert code_cells(book)[0].source == bootstrap_source()
    where = "import helpers, sys; print(helpers.__file__, 'torch' in sys.modules)"
    book.cells.append(nbformat.v4.new_code_cell(where))
    execute_notebook(book, content, env)
    assert list(output_errors(book)) == []
    assert code_cells(book)[0].outputs == []
    place, torch = book.cells[-1].outputs[0].text.split()
    assert Path(place).is_relative_to(tmp_path / "colab"), "installed there, not found here"
    assert torch == "False"


@pytest.mark.pypi
def test_notebooks_run_with_lowest_versions(
    pypi: None, clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Notebooks with figures, sliders and tables run with the lowest versions, without PyTorch."""
    lowest = str(ROOT / "tests/lowest.txt")
    python = environment(tmp_path / "lowest", sys.executable, "-c", lowest, str(clone), "ipykernel")
    use_kernel(python, tmp_path, monkeypatch)
    for path in (path for n in ("01", "11") for path in (clone / "notebooks").glob(f"{n}_*.ipynb")):
        book = nbformat.read(path, as_version=4)
        book.cells.append(nbformat.v4.new_code_cell("import sys; print('torch' in sys.modules)"))
        execute_notebook(book, path.parent, without(os.environ, "PYTHONPATH"))
        assert list(output_errors(book)) == [], path.name
        assert book.cells[-1].outputs[0].text == "False\n"
