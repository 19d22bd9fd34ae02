"""Runs the signatures of an export, one batch at a time, requests that come together in one."""

import asyncio
import concurrent.futures
import time
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import prometheus_client
import tensorflow as tf
import tensorflow_text  # noqa: F401  (registers the operations of the SavedModel)
from google.protobuf.json_format import MessageToDict
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from keras_transformer.serving.rest_form import Refused
from keras_transformer.serving.saved_model import tensorflow_path

# Their outputs have one shape whatever else is in the batch; those of `align` do not.
BATCHED = ("serving_default", "n_best", "score", "translate", "encode")


class Signature(NamedTuple):
    """A function of the export, and the types of its inputs and outputs."""

    function: Any
    inputs: dict[str, "Spec"]
    outputs: dict[str, "Spec"]
    model: Any  # kept, because the function uses its variables


class Waiting(NamedTuple):
    """A request in the queue."""

    signature: str
    inputs: dict[str, np.ndarray]
    rows: int
    until: float
    answer: asyncio.Future[Any]


class Spec(NamedTuple):
    """Type and shape of an input or output."""

    dtype: str
    shape: tuple[int | None, ...]


def load_signatures(directory: str | PathLike[str]) -> dict[str, Signature]:
    """The signatures of a SavedModel by name."""
    model = tf.saved_model.load(tensorflow_path(directory))
    found = {}
    for name, function in model.signatures.items():
        _, inputs = function.structured_input_signature
        found[name] = Signature(
            function,
            {key: Spec(spec.dtype.name, tuple(spec.shape)) for key, spec in inputs.items()},
            {
                key: Spec(spec.dtype.name, tuple(spec.shape))
                for key, spec in function.structured_outputs.items()
            },
            model,
        )
    return found


def signature_definitions(directory: str | PathLike[str]) -> dict[str, Any]:
    """The signatures as TensorFlow Serving describes them: their protocol buffers as JSON."""
    saved_model = SavedModel.FromString(Path(directory, "saved_model.pb").read_bytes())
    return {
        name: MessageToDict(
            definition,
            preserving_proto_field_name=True,
            always_print_fields_with_no_presence=True,
        )
        for name, definition in saved_model.meta_graphs[0].signature_def.items()
    }


class SignatureRunner:
    """Queues requests and runs them in one thread, as TensorFlow takes all cores for each.

    Requests of one signature that are waiting together are one batch, of at most `batch_size`
    rows, unless one alone has more. A request that waits longer than its time is given up.
    """

    def __init__(
        self, signatures: Mapping[str, Signature], batch_size: int, wait: float, queue: int
    ) -> None:
        self.signatures = signatures
        self.batch_size = batch_size
        self.wait = wait
        self.queue_size = queue
        self.queue: list[Waiting] = []
        self.batches: Any = None

    async def __aenter__(self) -> Self:
        self.arrived = asyncio.Condition()
        self.thread = concurrent.futures.ThreadPoolExecutor(1)
        self.closing = False
        self.task = asyncio.create_task(self._serve())
        return self

    async def __aexit__(self, *error: object) -> None:
        self.closing = True
        async with self.arrived:
            self.arrived.notify_all()
        await self.task
        self.thread.shutdown()

    def count_in(self, registry: prometheus_client.CollectorRegistry) -> None:
        """Adds what is measured here to the metrics."""
        self.batches = prometheus_client.Histogram(
            "batch_rows", "Texts translated at once.", buckets=[2**n for n in range(11)],
            registry=registry,
        )  # fmt: skip
        prometheus_client.Gauge(
            "requests_waiting", "Requests in the queue.", registry=registry
        ).set_function(lambda: len(self.queue))
        prometheus_client.Gauge(
            "compiled_shapes", "Shapes met; each was compiled.", registry=registry
        ).set_function(self.compiled_shapes)

    def compiled_shapes(self) -> int:
        """How many shapes the functions of the export have met so far."""
        model = next(iter(self.signatures.values())).model
        return sum(int(shapes.numpy().sum()) for shapes in getattr(model, "shapes_met", ()))

    def warm_up(self) -> None:
        """Runs what the page needs once, so that nobody waits for a compilation."""
        for name, rows in (("serving_default", 1), ("n_best", 1), ("align", 1), ("n_best", 8)):
            if name in self.signatures:
                self._run(name, {"text": np.array([b"a"] * rows, object)})

    def replay(self, directory: str | PathLike[str]) -> int:
        """Runs the requests that an export has for warming up a server; returns how many."""
        from tensorflow_serving.apis import prediction_log_pb2

        path = Path(directory, "assets.extra", "tf_serving_warmup_requests")
        if not path.exists():
            raise ValueError(f"{path} is missing: it is written where the extra `serving` is")
        records = [record.numpy() for record in tf.data.TFRecordDataset(tensorflow_path(path))]
        for record in records:
            request = prediction_log_pb2.PredictionLog.FromString(record).predict_log.request
            arrays = {key: tf.make_ndarray(tensor) for key, tensor in request.inputs.items()}
            self._run(request.model_spec.signature_name, arrays)
        return len(records)

    async def run(
        self, signature: str, inputs: dict[str, np.ndarray], timeout: float
    ) -> dict[str, np.ndarray]:
        """The outputs, {name: array}, of one request; `Refused` when it cannot be answered."""
        rows = len(next(iter(inputs.values())))
        self.queue = [one for one in self.queue if not one.answer.done()]  # others gave up
        if len(self.queue) >= self.queue_size:
            raise Refused(503, "too many requests are waiting")
        until = time.monotonic() + timeout
        answer = asyncio.get_running_loop().create_future()
        async with self.arrived:
            self.queue.append(Waiting(signature, inputs, rows, until, answer))
            self.arrived.notify_all()
        try:
            return await asyncio.wait_for(answer, timeout)
        except TimeoutError:
            raise Refused(504, f"no answer within {timeout:g} seconds") from None

    async def _serve(self) -> None:
        while True:
            async with self.arrived:
                await self.arrived.wait_for(lambda: self.queue or self.closing)
            if not self.queue:
                return
            await asyncio.sleep(self.wait)
            batch = self._next_batch()
            if batch:
                await self._answer(batch)

    def _next_batch(self) -> list[Waiting]:
        """Takes the requests that are run next out of the queue; none are left that gave up."""
        now = time.monotonic()
        self.queue = [one for one in self.queue if one.until > now and not one.answer.done()]
        batch: list[Waiting] = []
        rows = 0
        for one in self.queue:
            first = batch[0] if batch else one
            alike = one is first or (one.signature == first.signature and one.signature in BATCHED)
            if alike and (not batch or rows + one.rows <= self.batch_size):
                batch.append(one)
                rows += one.rows
        # By identity: requests compare as their arrays do, which have no single truth.
        taken = set(map(id, batch))
        self.queue = [one for one in self.queue if id(one) not in taken]
        return batch

    async def _answer(self, batch: list[Waiting]) -> None:
        name = batch[0].signature
        loop = asyncio.get_running_loop()
        try:
            inputs = {
                key: np.concatenate([one.inputs[key] for one in batch]) for key in batch[0].inputs
            }
            outputs = await loop.run_in_executor(self.thread, self._run, name, inputs)
            parts = divided(outputs, [one.rows for one in batch])
        except Exception as error:  # whatever it is, the next requests are answered
            if len(batch) > 1:  # the others need not suffer from the one
                for one in batch:
                    await self._answer([one])
            elif not batch[0].answer.done():
                status = 400 if isinstance(error, tf.errors.InvalidArgumentError) else 500
                batch[0].answer.set_exception(Refused(status, shorten_error(error)))
            return
        if self.batches:
            self.batches.observe(sum(one.rows for one in batch))
        for one, part in zip(batch, parts, strict=True):
            if not one.answer.done():  # its client may have given up
                one.answer.set_result(part)

    def _run(self, name: str, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        signature = self.signatures[name]
        tensors = {
            key: tf.constant(array, signature.inputs[key].dtype, array.shape)
            for key, array in inputs.items()
        }
        outputs = signature.function(**tensors)
        return {key: outputs[key].numpy() for key in sorted(outputs)}


def divided(outputs: Mapping[str, np.ndarray], rows: Sequence[int]) -> list[dict[str, np.ndarray]]:
    """The outputs of each request, which has so many of their `rows`."""
    ends = np.cumsum(rows)
    return [
        {key: array[end - count : end] for key, array in outputs.items()}
        for end, count in zip(ends, rows, strict=True)
    ]


def shorten_error(error: Exception) -> str:
    """The message of an error of TensorFlow's, without where in the graph it happened."""
    lines = [line.strip() for line in str(error).splitlines()]
    kept = [line for line in lines if line and "[[{{" not in line]
    return kept[-1] if kept else type(error).__name__
