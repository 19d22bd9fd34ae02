"""A beam search that keeps what it did at every step, and that as a tree of hypotheses."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from keras import ops, tree

from keras_transformer.arguments import Logits, LogProbs
from keras_transformer.decoding import BeamSearch, GreedySearch, Search
from keras_transformer.decoding.hypotheses import Beams, Pool
from keras_transformer.decoding.search import IMPOSSIBLE, Task


class WatchedBeamSearch(BeamSearch):
    """Searches one sentence as `BeamSearch` does, by its own code, and keeps every step.

    After a call `beams` holds the `Beams` before the first step and after each, as arrays.
    `following` holds the log-probabilities (1, beam, vocab) of what might follow at each step.
    """

    @classmethod
    def like(cls, search: Search) -> Self:
        """Returns a watched search that finds what `search` does; greedy search is a beam of 1."""
        if not isinstance(search, (BeamSearch, GreedySearch)):
            raise ValueError(
                "`search` must be a BeamSearch or a GreedySearch. "
                f"Received: search={type(search).__name__}"
            )
        config = search.get_config()
        if isinstance(search, GreedySearch):
            config |= {"beam_size": 1, "length_penalty": 0.0}
        return cls(**config)

    def loop(
        self,
        unfinished: Callable[[Beams], Any],
        advance: Callable[[Beams], Beams],
        beams: Beams,
    ) -> Beams:
        """Runs the search's loop in Python."""
        self.beams = [kept(beams)]
        self.following: list[np.ndarray] = []
        while unfinished(beams):
            beams = advance(beams)
            self.beams.append(kept(beams))
        return beams

    def next_log_probs(self, task: Task, now: Beams, logits: Logits) -> LogProbs:
        """Keeps what may follow each hypothesis."""
        log_probs = super().next_log_probs(task, now, logits)
        self.following.append(ops.convert_to_numpy(log_probs))
        return log_probs

    def hypotheses(self, bos_id: int, num_following: int = 6) -> tuple[list["Node"], list["Step"]]:
        """All hypotheses that a search of one sentence kept: the nodes, and the steps."""
        nodes, steps = [Node(-1, bos_id, 0, 0.0)], [Step([0], [])]
        live_at: list[dict[int, int]] = [{0: 0}]  # places by slot
        finished_at: dict[tuple[int, int], int] = {}  # places by length and slot
        for index, now in enumerate(self.beams[1:], start=1):
            live_at.append({})
            for slot in map(int, np.flatnonzero(now.log_probs[0] > IMPOSSIBLE / 2)):
                parent = live_at[index - 1][now.paths[0, slot, index - 1]]
                live_at[index][slot] = len(nodes)
                total = float(now.log_probs[0, slot])
                nodes.append(Node(parent, int(now.tokens[slot]), index, total))
            finished = []
            for path, score, length in list_finished(now.pool):
                slot = path[length]
                if (length, slot) not in finished_at:
                    parent = live_at[length - 1][path[length - 1]]
                    token, gained = (part[0, length, slot] for part in now.written[:2])
                    total = nodes[parent].total + float(gained)
                    finished_at[length, slot] = len(nodes)
                    nodes.append(Node(parent, int(token), int(length), total, float(score)))
                finished.append(finished_at[length, slot])
            steps.append(Step(list(live_at[index].values()), finished))
        for slots, log_probs in zip(live_at, self.following, strict=False):
            for slot, place in slots.items():
                taken = [node.token for node in nodes if node.parent == place]
                likeliest = rank_following(log_probs[0, slot], num_following, taken)
                nodes[place] = nodes[place]._replace(following=likeliest)
        return nodes, steps


def kept(beams: Beams) -> Beams:
    """The beams as arrays, without the model's caches."""
    parts = beams._replace(state=None, coverage=None)
    return tree.map_structure(lambda x: None if x is None else ops.convert_to_numpy(x), parts)


class Node(NamedTuple):
    """A hypothesis: that of `parent`, its place in the list of all, and one token more.

    `total` is the sum of log-probabilities. `score` is that of a finished hypothesis, None for a
    live one. `following` lists the likeliest next tokens as (token, log-probability), None where
    the search did not go on.
    """

    parent: int
    token: int
    length: int
    total: float
    score: float | None = None
    following: list[tuple[int, float]] | None = None


class Step(NamedTuple):
    """The hypotheses after a step: places of the live ones, and of the finished ones kept."""

    live: list[int]
    finished: list[int]


def list_finished(pool: Pool) -> list[tuple[Any, Any, Any]]:
    """Path, score and length of each finished hypothesis of the only sentence, the best first."""
    paths, scores, lengths = (part[0].reshape(-1, *part.shape[3:]) for part in pool)
    order = np.argsort(-scores, kind="stable")
    return [(paths[i], scores[i], lengths[i]) for i in order if scores[i] > IMPOSSIBLE / 2]


def rank_following(
    log_probs: np.ndarray, count: int, taken: Sequence[int]
) -> list[tuple[int, float]]:
    """The `count` likeliest tokens, and those that the search took, the likeliest first."""
    order = np.argsort(-log_probs, kind="stable")
    likeliest = [int(i) for i in order[:count] if log_probs[i] > IMPOSSIBLE / 2]
    tokens = [*likeliest, *(token for token in taken if token not in likeliest)]
    tokens = sorted(tokens, key=lambda token: -log_probs[token])
    return [(token, float(log_probs[token])) for token in tokens]


def collect_ids(nodes: Sequence[Node], place: int) -> list[int]:
    """The ids of a hypothesis, `bos_id` first."""
    ids = []
    while place >= 0:
        ids.append(nodes[place].token)
        place = nodes[place].parent
    return ids[::-1]
