"""The futures of operations. Their callbacks may communicate: they run one after the other, in the
order of the operations of the group, and what they issue has a communicator of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from whorl_torch import _C


class Future(torch.futures.Future):
    """`get_future()` of a Work, and what `then()` of one returns."""

    def __init__(self, origin: _C.Origin, work: dist.Work | None = None) -> None:
        super().__init__()
        self._origin = origin
        self._work = work

    def wait(self) -> Any:
        if self._work is not None and not self.done():
            self._work.wait()  # keeps the time, and carries the operation out if nobody has begun it
        return super().wait()

    def then(self, callback: Callable[[torch.futures.Future], Any]) -> Future:
        result = Future(self._origin)
        _C.share_state(result, super().then(_C.in_order(callback, self._origin)))
        return result

    def add_done_callback(self, callback: Callable[[torch.futures.Future], Any]) -> None:
        super().add_done_callback(_C.in_order(callback, self._origin))
