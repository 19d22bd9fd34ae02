"""SignatureRunner: requests together in one batch, each its own answer, and those given up."""

import asyncio
import threading
import time

import numpy as np
import pytest
import tensorflow as tf

pytest.importorskip("prometheus_client")

from keras_transformer.serving.rest_form import Refused
from keras_transformer.serving.signature_runner import Signature, SignatureRunner, Spec


class Recorder:
    """A signature that doubles numbers, records its batches, and can be held up."""

    def __init__(self):
        self.batches = []
        self.go_on = threading.Event()
        self.go_on.set()

    def __call__(self, number):
        self.batches.append(number.numpy().tolist())
        assert self.go_on.wait(20)
        if -2 in self.batches[-1]:
            raise ValueError("broken")
        if -1 in self.batches[-1]:
            raise tf.errors.InvalidArgumentError(
                None, None, "Graph error:\n\nbelow 0\n\t [[{{node x}}]]"
            )
        return {"twice": number * 2}


def run(coroutine, queue=8, batch_size=4):
    """Runs `coroutine(runner, recorder)` with a runner of one batched signature and another."""
    recorder = Recorder()
    spec = {"number": Spec("int32", (None,))}
    names = ("serving_default", "align")
    signatures = {name: Signature(recorder, spec, spec, None) for name in names}

    async def inside():
        async with SignatureRunner(signatures, batch_size, 0.01, queue) as runner:
            return await coroutine(runner, recorder)

    return asyncio.run(inside())


def ask(runner, *numbers, name="serving_default", timeout=20):
    return runner.run(name, {"number": np.array(numbers, "int32")}, timeout)


def test_requests_that_wait_together_are_one_batch_and_each_has_its_answer():
    async def several(runner, recorder):
        answers = await asyncio.gather(
            ask(runner, 1), ask(runner, 2, 3), ask(runner, 4), ask(runner, 5, 6)
        )
        return [answer["twice"].tolist() for answer in answers], recorder.batches

    answers, batches = run(several)
    assert answers == [[2], [4, 6], [8], [10, 12]]
    assert batches == [[1, 2, 3, 4], [5, 6]]


def test_a_request_larger_than_a_batch_runs_alone():
    async def large(runner, recorder):
        await asyncio.gather(ask(runner, *range(9)), ask(runner, 1))
        return recorder.batches

    assert run(large) == [list(range(9)), [1]]


def test_a_request_that_fits_beside_the_first_is_taken_from_behind_one_that_does_not():
    async def mixed(runner, recorder):
        sizes = 40, 40, 10
        answers = await asyncio.gather(*(ask(runner, *range(size)) for size in sizes))
        assert [len(answer["twice"]) for answer in answers] == [*sizes]
        return [len(batch) for batch in recorder.batches], await ask(runner, 7)

    batches, later = run(mixed, batch_size=64)
    assert batches == [50, 40]
    assert later["twice"].tolist() == [14]


def test_requests_that_cannot_be_joined_are_answered_each_alone():
    async def unlike(runner, recorder):
        other = runner.run("serving_default", {"number": np.array([[3]], "int32")}, 20)
        answers = await asyncio.gather(ask(runner, 1), other)
        return [answer["twice"].tolist() for answer in answers]

    assert run(unlike) == [[2], [[6]]]


def test_signatures_are_not_mixed_and_some_never_batched():
    async def mixed(runner, recorder):
        await asyncio.gather(
            ask(runner, 1), ask(runner, 2, name="align"), ask(runner, 3, name="align"),
            ask(runner, 4),
        )  # fmt: skip
        return recorder.batches

    assert run(mixed) == [[1, 4], [2], [3]]


def test_a_request_without_rows_is_answered():
    async def empty(runner, recorder):
        return (await ask(runner))["twice"].shape

    assert run(empty) == (0,)


def test_a_full_queue_refuses_at_once():
    async def crowd(runner, recorder):
        recorder.go_on.clear()
        first = asyncio.create_task(ask(runner, 0))
        while not recorder.batches:
            await asyncio.sleep(0.01)
        waiting = [asyncio.create_task(ask(runner, number)) for number in (1, 2)]
        await asyncio.sleep(0.05)
        with pytest.raises(Refused, match="too many") as refusal:
            await ask(runner, 3)
        assert refusal.value.status == 503
        recorder.go_on.set()
        return [answer["twice"].tolist() for answer in await asyncio.gather(first, *waiting)]

    assert run(crowd, queue=2) == [[0], [2], [4]]


def test_a_request_that_waited_too_long_is_given_up_and_never_run():
    async def late(runner, recorder):
        recorder.go_on.clear()
        first = asyncio.create_task(ask(runner, 0))
        while not recorder.batches:
            await asyncio.sleep(0.01)
        began = time.monotonic()
        with pytest.raises(Refused, match=r"no answer within 0.1 seconds") as refusal:
            await ask(runner, 1, timeout=0.1)
        assert refusal.value.status == 504
        assert time.monotonic() - began < 5
        recorder.go_on.set()
        await first
        await ask(runner, 2)
        return recorder.batches

    assert run(late) == [[0], [2]]


def test_what_the_graph_refuses_is_told_and_the_next_is_answered():
    async def bad(runner, recorder):
        with pytest.raises(Refused, match="^below 0$"):
            await ask(runner, -1)
        return (await ask(runner, 3))["twice"].tolist()

    assert run(bad) == [6]


def test_what_the_graph_refuses_does_not_spoil_what_came_with_it():
    async def bad(runner, recorder):
        asked = [ask(runner, 1), ask(runner, -1), ask(runner, 2)]
        first, refused, last = await asyncio.gather(*asked, return_exceptions=True)
        assert isinstance(refused, Refused)
        return first["twice"].tolist(), last["twice"].tolist()

    assert run(bad) == ([2], [4])


def test_a_signature_that_breaks_does_not_end_the_service():
    async def broken(runner, recorder):
        with pytest.raises(Refused, match="^broken$") as refusal:
            await ask(runner, -2)
        assert refusal.value.status == 500
        return (await ask(runner, 3))["twice"].tolist()

    assert run(broken) == [6]


def test_requests_that_gave_up_leave_their_place_in_the_queue():
    async def crowd(runner, recorder):
        recorder.go_on.clear()
        first = asyncio.create_task(ask(runner, 0))
        while not recorder.batches:
            await asyncio.sleep(0.01)
        for number in (1, 2):
            with pytest.raises(Refused, match="no answer"):
                await ask(runner, number, timeout=0.05)
        later = asyncio.create_task(ask(runner, 3))
        await asyncio.sleep(0.05)
        recorder.go_on.set()
        await first
        return (await later)["twice"].tolist(), recorder.batches

    assert run(crowd, queue=1) == ([6], [[0], [3]])


def test_at_the_end_what_was_begun_is_finished():
    async def leave(runner, recorder):
        return [asyncio.create_task(ask(runner, number)) for number in (1, 2)]

    async def inside():
        recorder = Recorder()
        spec = {"number": Spec("int32", (None,))}
        signatures = {"serving_default": Signature(recorder, spec, spec, None)}
        async with SignatureRunner(signatures, 4, 0.01, 8) as runner:
            tasks = await leave(runner, recorder)
            await asyncio.sleep(0)
        return [(await task)["twice"].tolist() for task in tasks]

    assert asyncio.run(inside()) == [[2], [4]]
