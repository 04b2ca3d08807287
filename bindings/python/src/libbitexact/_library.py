"""Finds and opens libbitexact.so. Opening it touches no GPU."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

ENVIRONMENT_VARIABLE = "BITEXACT_LIBRARY"
PACKAGED_NAME = "libbitexact.so.1"


class LibraryNotFound(ImportError):
    """No libbitexact.so where one is looked for."""


def path() -> Path:
    """The file that is opened: what BITEXACT_LIBRARY names, or else the copy inside this package."""
    named = os.environ.get(ENVIRONMENT_VARIABLE)
    return Path(named) if named else Path(__file__).resolve().parent / PACKAGED_NAME


def open_library() -> ctypes.CDLL:
    """Opens the library with local symbols, every one resolved.

    Raises:
        LibraryNotFound: the file is not there or cannot be loaded; the text says which file and why.
    """
    file = path()
    try:
        return ctypes.CDLL(str(file), mode=os.RTLD_LOCAL | os.RTLD_NOW)
    except OSError as error:
        raise LibraryNotFound(
            f"cannot open {file}: {error}. Install the package with pip, or set {ENVIRONMENT_VARIABLE} to a "
            "libbitexact.so"
        ) from error
