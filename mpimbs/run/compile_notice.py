"""A word on standard error when the kernels really are compiled: a first run would say nothing for a minute."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from numba.core import event

from mpimbs.kernels.kernel_cache import cache_folder

KIND = "numba:compile"


class _Listener(event.Listener):
    """Told by numba of everything that it compiles; of what it finds in its cache it tells nothing."""

    said = False

    def on_start(self, event: event.Event) -> None:
        ours = event.data["dispatcher"].py_func.__module__.startswith("mpimbs.")  # not a force of the user's
        if ours and not self.said:
            self.said = True
            print(
                "compiling the kernels for this processor, once: 10 to 30 s; later runs load them from "
                f"{cache_folder().parent}",
                file=sys.stderr,
                flush=True,
            )

    def on_end(self, event: event.Event) -> None:
        pass


LISTENER = _Listener()  # one for the process: it speaks once


@contextmanager
def compilation_told(wanted: bool) -> Iterator[None]:
    """Say in this block, once in a process, that kernels are being compiled, if they are not in the cache.

    Parameters
    ----------
    wanted : bool
        On rank 0, where there is someone to read it; rank 0 is the one on its node that compiles.
    """
    if not wanted:
        yield
        return
    with event.install_listener(KIND, LISTENER):
        yield
