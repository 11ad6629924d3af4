"""The butterfly's schedule, played through in plain Python for any number of ranks."""

import math
from collections import Counter

import numpy as np
import pytest

from mpimbs.parallel.butterfly import EXTRA, IS_LEFT, SOURCE, TAG, TARGET, schedule
from mpimbs.parallel.native import PROC_NULL

Message = tuple[int, int, int]  # from, to, tag


class Player:
    """One rank: at each level it sends and receives at once, then sends the extra message; all of it blocks."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.rows, self.value = rank, schedule(rank, size).tolist(), (rank,)
        self.level, self.extra = 0, False

    @property
    def done(self) -> bool:
        return self.level == len(self.rows)

    def offers(self) -> tuple[set[Message], set[Message]]:
        """Messages that this rank is ready to send and to receive."""
        if self.done:
            return set(), set()
        row = self.rows[self.level]
        if self.extra:
            return {(self.rank, row[EXTRA], row[TAG])}, set()
        out = {(self.rank, row[TARGET], row[TAG])} if row[TARGET] != PROC_NULL else set()
        return out, {(row[SOURCE], self.rank, row[TAG])} if row[SOURCE] != PROC_NULL else set()


def play(size: int) -> tuple[list[Player], Counter[Message], Counter[Message]]:
    """Let the messages through whose two sides are ready, as blocking calls without buffers do, until all is done."""
    players = [Player(rank, size) for rank in range(size)]
    sent: Counter[Message] = Counter()
    received: Counter[Message] = Counter()
    halves: dict[int, set[str]] = {rank: set() for rank in range(size)}  # what is left of a rank's current step
    news: dict[int, tuple[int, ...]] = {}
    while not all(p.done for p in players):
        moved = False
        ready = [p.offers() for p in players]
        for p in players:
            for message in ready[p.rank][0] - {m for m in ready[p.rank][0] if "sent" in halves[p.rank]}:
                target = players[message[1]]
                if message in ready[target.rank][1] and "received" not in halves[target.rank]:
                    sent[message] += 1
                    received[message] += 1
                    halves[p.rank].add("sent")
                    halves[target.rank].add("received")
                    news[target.rank] = p.value
                    moved = True
        for p in players:
            out, into = ready[p.rank]
            if p.done or (out and "sent" not in halves[p.rank]) or (into and "received" not in halves[p.rank]):
                continue
            row = p.rows[p.level]
            halves[p.rank] = set()
            moved = True
            if not p.extra and row[EXTRA] != PROC_NULL:
                p.extra = True
                continue
            theirs = news.pop(p.rank)
            p.value = p.value + theirs if row[IS_LEFT] else theirs + p.value
            p.level, p.extra = p.level + 1, False
        assert moved, f"deadlock at {[(p.rank, p.level, p.extra) for p in players if not p.done]}"
    return players, sent, received


@pytest.mark.parametrize("size", range(1, 34))
def test_every_rank_ends_with_all(size: int) -> None:
    """In order, so that a product that does not commute is right; and each message is received once."""
    players, sent, received = play(size)
    for p in players:
        assert p.value == tuple(range(size)), f"rank {p.rank} has {p.value}"
    assert sent == received and all(count == 1 for count in sent.values())


@pytest.mark.parametrize("size", range(1, 34))
def test_cost(size: int) -> None:
    """ceil(log2 P) levels at most; one message in and one or two out at each, the second only for an odd group."""
    tables = [schedule(rank, size) for rank in range(size)]
    assert max(len(table) for table in tables) == math.ceil(math.log2(size))
    assert min(len(table) for table in tables) >= math.floor(math.log2(size))
    for rank, table in enumerate(tables):
        assert np.all(table[:, SOURCE] != PROC_NULL), f"rank {rank} receives nothing at a level"
        assert np.all((table[:, EXTRA] == PROC_NULL) | (table[:, TARGET] != PROC_NULL))
        assert len(set(table[:, TAG].tolist())) == len(table), f"rank {rank} uses a tag twice"
    if size & (size - 1) == 0:
        assert all(np.all(table[:, EXTRA] == PROC_NULL) for table in tables), "an extra message among equal groups"
