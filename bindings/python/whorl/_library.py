"""The shared library, and its declarations.

libwhorl.so.0 is the one that the process has loaded already (another copy would have memory and threads of its
own), else the one beside this file, which a wheel contains, else the system's.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

from whorl._capi import ffi

NAME = "libwhorl.so.0"
NULL: Any = ffi.NULL


def _is_loaded() -> bool:
    """Tells whether the process has the library. By ctypes: where the library is found and not loaded, the loader
    gives no message, and cffi crashes without one."""
    try:
        ctypes.CDLL(NAME, mode=os.RTLD_NOW | os.RTLD_NOLOAD)
    except OSError:
        return False
    return True


def _load() -> Any:
    reasons = []
    beside = str(Path(__file__).resolve().parent / NAME)
    for name in (NAME,) if _is_loaded() else (beside, NAME):
        try:
            return ffi.dlopen(name, ffi.RTLD_NOW)
        except OSError as error:
            reasons.append(str(error))
    raise ImportError(
        f"whorl: there is no {NAME}, neither in {Path(beside).parent} nor in the system's library folders: install "
        f"whorl, or build the package again (pip install ./bindings/python), which puts the library into it, or name "
        f"its folder in LD_LIBRARY_PATH. The loader says: {'; '.join(reasons)}"
    )


def _release_of(code: int) -> str:
    return f"{code // 10000}.{code // 100 % 100}.{code % 100}"


def _check_release(library: Any) -> str:
    """Returns the release of the library; raises if that is older than the declarations."""
    number = ffi.new("int*")
    library.whorlGetRelease(number)
    found, needed = int(number[0]), int(library.WHORL_RELEASE_CODE)
    if found < needed or found // 10000 != needed // 10000:
        raise ImportError(
            f"whorl: this package was built for release {_release_of(needed)} of {NAME}, and the one that was loaded "
            f"is {_release_of(found)}: install the same release of both"
        )
    return _release_of(found)


lib: Any = _load()
__version__ = _check_release(lib)

__all__ = ["NULL", "__version__", "ffi", "lib"]
