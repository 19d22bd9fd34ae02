"""The environments of processes in other locales: ASCII, Latin-1 and UTF-8."""

import os
import shutil
import subprocess

import pytest

# Without the last two Python takes UTF-8 in the locale C.
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
UTF_8 = {"LC_ALL": "C.UTF-8"}


def latin_1(folder):
    """Makes a German locale of Latin-1 in `folder`; skips the test where that cannot be done."""
    name = "de_DE.ISO-8859-1"
    command = ["localedef", "-i", "de_DE", "-f", "ISO-8859-1", folder / name]
    if shutil.which("localedef") is None or subprocess.run(command, check=False).returncode:
        pytest.skip("needs localedef and the sources of locales")
    return {"LC_ALL": name, "LOCPATH": str(folder), "PYTHONUTF8": "0"}


def environment(name, folder):
    """The variables of a process in the locale `name`, "ascii", "latin-1" or "utf-8"."""
    own = latin_1(folder) if name == "latin-1" else {"ascii": ASCII, "utf-8": UTF_8}[name]
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("PYTHONIO")}
    return {**inherited, **own}
