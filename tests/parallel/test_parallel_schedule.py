"""The butterfly's schedule, played through in plain Python for any number of ranks."""

import math
from collections.abc import Iterator

import numpy as np
import pytest

from mpimbs.parallel.butterfly import ALSO_TO, FROM, TAG, TO, schedule
from mpimbs.parallel.native import PROC_NULL

Message = tuple[int, int, int]  # from, to, tag


class Player:
    """One rank: at each level it sends and receives at once, then sends the extra message; both calls block.

    `sends` and `receives` are the messages that its call waits for.
    """

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.value, self.theirs, self.done = rank, (rank,), (), False
        self.sends: set[Message] = set()
        self.receives: set[Message] = set()
        self._calls = self._play(schedule(rank, size).tolist())
        self.go_on()

    def _play(self, rows: list[list[int]]) -> Iterator[None]:
        for source, target, extra, tag, is_left in rows:
            self.receives = {(source, self.rank, tag)}
            self.sends = {(self.rank, target, tag)} if target != PROC_NULL else set()
            yield
            if extra != PROC_NULL:
                self.sends = {(self.rank, extra, tag)}
                yield
            self.value = self.value + self.theirs if is_left else self.theirs + self.value
        self.done = True

    def go_on(self) -> None:
        """Go on to the next call if this one has all its messages."""
        if not self.sends and not self.receives:
            next(self._calls, None)


def play(size: int) -> tuple[list[Player], list[Message]]:
    """Let the messages through for which both sides wait, as calls without buffers do; the players and messages."""
    players = [Player(rank, size) for rank in range(size)]
    through: list[Message] = []
    while not all(p.done for p in players):
        sends, receives = (set().union(*(getattr(p, side) for p in players)) for side in ("sends", "receives"))
        assert sends & receives, f"deadlock: waiting to send {sends}, to receive {receives}"
        for source, target, tag in sends & receives:
            players[target].theirs = players[source].value
            players[source].sends.remove((source, target, tag))
            players[target].receives.remove((source, target, tag))
            through.append((source, target, tag))
        for p in players:
            p.go_on()
    return players, through


@pytest.mark.parametrize("size", range(1, 34))
def test_every_rank_ends_with_all(size: int) -> None:
    """In order, so that a product that does not commute is right; and each message is received once."""
    players, through = play(size)
    for p in players:
        assert p.value == tuple(range(size)), f"rank {p.rank} has {p.value}"
        assert not p.sends and not p.receives, f"rank {p.rank} still waits for {p.sends} and {p.receives}"
    assert len(set(through)) == len(through), "two messages with the same ranks and tag"


@pytest.mark.parametrize("size", range(1, 34))
def test_cost(size: int) -> None:
    """ceil(log2 P) levels at most; one message in and one or two out at each, the second only for an odd group."""
    tables = [schedule(rank, size) for rank in range(size)]
    assert max(len(table) for table in tables) == math.ceil(math.log2(size))
    assert min(len(table) for table in tables) >= math.floor(math.log2(size))
    for rank, table in enumerate(tables):
        assert np.all(table[:, FROM] != PROC_NULL), f"rank {rank} receives nothing at a level"
        assert np.all((table[:, ALSO_TO] == PROC_NULL) | (table[:, TO] != PROC_NULL))
        assert len(set(table[:, TAG].tolist())) == len(table), f"rank {rank} uses a tag twice"
    if size & (size - 1) == 0:
        assert all(np.all(table[:, ALSO_TO] == PROC_NULL) for table in tables), "an extra message among equal groups"
