"""Settings with which each process starts sooner. pytest loads them before all plugins (`-p tests.early`)."""

import os
import sys

# jsonschema, which reads notebooks, would compile 39 grammars for addresses in many scripts: two seconds in
# every process, for a check that nobody asks for. It does without where it cannot be imported.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]

# What is compiled is kept, whatever the environment says: each process, kernel and new environment would
# compile all that it imports.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
