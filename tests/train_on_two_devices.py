"""Training runs on one and two devices, as JSON: `MirroredStrategy`, or on JAX `DataParallel`.

A process of its own runs it: the two devices are made before TensorFlow or JAX starts.
"""

import contextlib
import functools
import json
import os
import sys
import threading

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

import keras
import numpy as np

from keras_transformer import (
    FusedAdam,
    MaskedAccuracy,
    MaskedCrossentropy,
    PaddingRatio,
    Perplexity,
    RecurrentSeq2Seq,
    TokenCount,
    Transformer,
)
from keras_transformer.layers import Encoder
from keras_transformer.layers.dropout import Dropout
from tests.backends import randomise

if keras.backend.backend() == "tensorflow":
    import tensorflow as tf

ON_JAX = keras.backend.backend() == "jax"
VOCAB = 7
# Batches of 4 and of 3 rows, so that the replicas have 2 and 2, then 2 and 1 of them: 5, 3, 7
# and 1 tokens. Keras refuses such a batch as the first. On JAX the number of devices divides that
# of the rows.
LABELS = np.array(
    [[1, 2, 3, 4], [5, 0, 0, 0], [2, 3, 0, 0], [4, 0, 0, 0]]
    + [[6, 5, 4, 3], [1, 6, 2, 0], [3, 0, 0, 0]]
)
WEIGHTS = np.where(LABELS, 0.5 + np.arange(28).reshape(7, 4) % 3, 0).astype("float32")


def embedding(regularizer=None):
    return keras.layers.Embedding(VOCAB, VOCAB, embeddings_regularizer=regularizer)


def functional_model():
    return keras.Sequential([keras.Input((4,), dtype="int32"), embedding()])


@keras.saving.register_keras_serializable(package="tests")
class TwoPasses(Transformer):
    """Its second pass of a training step differs from the first, without chance.

    It has the training step of a `Transformer` with R-drop, and one embedding for all its layers.
    """

    def __init__(self):
        super().__init__(VOCAB, num_layers=1, d_model=4, num_heads=1, d_ff=4, r_drop=3.0)
        self.embedding = embedding(keras.regularizers.L2(0.01))
        self.counter = threading.local()  # each replica is traced by a thread of its own

    def build(self, input_shape=None):
        self.embedding.build(input_shape)
        self.built = True

    def call(self, inputs, training=False):
        logits = self.embedding(inputs)
        self.counter.passes = getattr(self.counter, "passes", 0) + bool(training)
        return logits * (1.0 if self.counter.passes % 2 else -0.5)


def small_transformer():
    return Transformer(VOCAB, num_layers=1, d_model=4, num_heads=1, d_ff=4, dropout=0.0)


def built(model):
    model.build((None, 4))
    return model


def sgd():
    return keras.optimizers.SGD(1.0)


def adam(**options):
    # A large epsilon: without one Adam's update hardly depends on the size of the gradients.
    return lambda: FusedAdam(0.5, epsilon=1.0, **options)


CASES = {
    "mean": {},
    "a Transformer": {"model": small_transformer, "optimizer": adam(global_clipnorm=0.1)},
    "a recurrent model": {"model": lambda: RecurrentSeq2Seq(VOCAB, d_model=4, dropout=0.0)},
    "mean, eagerly": {"run_eagerly": True},
    "weights of sentences": {"weights": WEIGHTS[:, 0], "optimizer": adam(clipvalue=0.01)},
    "sum of weights of tokens": {
        "weights": WEIGHTS,
        "reduction": "sum",
        "optimizer": adam(clipnorm=0.1),
    },
    "R-drop with a regulariser": {"model": lambda: built(TwoPasses())},
    "R-drop of a weighted sum": {
        "model": lambda: built(TwoPasses()),
        "weights": WEIGHTS,
        "reduction": "sum",
    },
    "clipped with weight decay": {"optimizer": adam(global_clipnorm=0.1, weight_decay=0.1)},
}


if ON_JAX:
    CASES["accumulated"] = {
        "optimizer": lambda: keras.optimizers.SGD(1.0, gradient_accumulation_steps=2)
    }
else:
    CASES["a last batch of a single row"] = {"rows": slice(0, 5)}


class Batches(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.logs = []

    def on_train_batch_end(self, batch, logs=None):
        self.logs.append({name: float(value) for name, value in logs.items()})


def trained(
    scope,
    model=functional_model,
    optimizer=sgd,
    reduction="mean",
    weights=None,
    rows=slice(0, 6 if ON_JAX else 7),
    **options,
):
    """What a training run of two epochs logs and leaves."""
    keras.utils.set_random_seed(1)
    with scope():
        model = model()
        model.compile(
            optimizer(),
            MaskedCrossentropy(0.1, reduction=reduction),
            metrics=[TokenCount(), PaddingRatio(), Perplexity()],
            weighted_metrics=[MaskedAccuracy()],
            jit_compile=False,
            **options,
        )
    batches = Batches()
    labels = LABELS[rows]
    weights = None if weights is None else weights[rows]
    models = (Transformer, RecurrentSeq2Seq)
    takes_pairs = isinstance(model, models) and not isinstance(model, TwoPasses)
    inputs = (labels, labels) if takes_pairs else labels
    fit = dict(sample_weight=weights, batch_size=4, verbose=0)
    history = model.fit(inputs, labels, epochs=2, shuffle=False, callbacks=[batches], **fit).history
    evaluated = model.evaluate(inputs, labels, **fit, return_dict=True)
    return {
        "history": history,
        "batches": batches.logs,
        "evaluated": evaluated,
        "weights": [weight.tolist() for weight in model.get_weights()],
    }


def gradient(scope, loss):
    """The gradient of all weights by `fit`: an update of rate 1 takes it off the weights.

    The replicas have two rows each, of 5 tokens and of 3.
    """
    keras.utils.set_random_seed(1)
    with scope():
        model = built(small_transformer())
        model.compile(sgd(), loss(), jit_compile=False)
    before = model.get_weights()
    model.fit((LABELS[:4], LABELS[:4]), LABELS[:4], batch_size=4, shuffle=False, verbose=0)
    return [(a - b).tolist() for a, b in zip(before, model.get_weights(), strict=True)]


def trained_on_texts(scope):
    """What a run of two epochs on batches of `translation_dataset`, of two shapes, leaves."""
    from keras_transformer.text import CharacterTokenizer, translation_dataset

    texts = ["abc", "c", "ab", "b", "abcabcab", "bca", "a", "cabcabc"]
    tokenizer = CharacterTokenizer.train(texts)
    options = dict(tokens_per_batch=32, max_shapes=2, rows_multiple=2, shuffle=True, seed=1)
    data = translation_dataset(texts, texts[::-1], tokenizer, **options)
    keras.utils.set_random_seed(1)
    with scope():
        model = Transformer(
            tokenizer.vocab_size, num_layers=1, d_model=4, num_heads=1, d_ff=4, dropout=0.0
        )
        model.compile(sgd(), MaskedCrossentropy(), metrics=[TokenCount()], jit_compile=False)
    history = model.fit(data, epochs=2, shuffle=False, verbose=0).history
    return {"history": history, "weights": [weight.tolist() for weight in model.get_weights()]}


def keras_loss():
    """Keras's own mean over the tokens of a replica."""
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0)


def refusal(strategy, optimizer, make_model):
    """The error of a training run that accumulates gradients."""
    with strategy.scope():
        model = make_model()
        try:
            model.compile(optimizer(0.1, gradient_accumulation_steps=2), MaskedCrossentropy())
            model.fit(LABELS[:4], LABELS[:4], verbose=0)
        except ValueError as error:
            return str(error)
    return None


def shares(strategy):
    """The replicas' losses of a loop of the user's own, and a loss outside of the replicas."""
    logits = np.eye(VOCAB, dtype="float32")[LABELS]
    loss = MaskedCrossentropy()
    whole = float(loss(LABELS, logits))
    data = tf.data.Dataset.from_tensor_slices((LABELS, logits)).batch(7)
    with strategy.scope():
        batch = next(iter(strategy.experimental_distribute_dataset(data)))
        parts = strategy.experimental_local_results(tf.function(strategy.run)(loss, args=batch))
        outside = float(loss(LABELS, logits))
    return {"whole": whole, "parts": [float(part) for part in parts], "outside": outside}


def dropped(strategy, make_layer):
    """What a layer with dropout makes of the same inputs, in a call outside and in each replica."""
    found, inputs = [], np.ones((1, 64, 2), "float32")
    for run in (lambda call: [call()], lambda call: strategy.run(tf.function(call)).values):
        keras.utils.set_random_seed(1)
        with strategy.scope():
            layer = make_layer()
            layer.build(inputs.shape)
            randomise(layer)
        call = functools.partial(layer, inputs, training=True)
        found += [part.numpy().tolist() for part in run(call)]
    return found


@contextlib.contextmanager
def data_parallel():
    keras.distribution.set_distribution(keras.distribution.DataParallel())
    yield


def mirrored_strategy():
    [cpu] = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def main():
    results = {}
    if ON_JAX:
        scope = data_parallel
    else:
        two = mirrored_strategy()
        scope = two.scope
        results["shares"] = shares(two)
        results["dropped"] = {
            name: dropped(two, make_layer)
            for name, make_layer in {
                "dropout": lambda: Dropout(0.5, seed=1),
                "computed twice": lambda: Encoder(1, 1, 4, dropout=0.5, remat=True),
            }.items()
        }
        results["refusals"] = [
            refusal(two, FusedAdam, functional_model),
            refusal(two, keras.optimizers.SGD, small_transformer),
        ]
    for number, where in ((1, contextlib.nullcontext), (2, scope)):
        results[number] = {name: trained(where, **options) for name, options in CASES.items()}
        results[number]["gradients"] = {
            "ours": gradient(where, MaskedCrossentropy),
            "Keras's": gradient(where, keras_loss),
        }
        if not ON_JAX:
            results[number]["texts"] = trained_on_texts(where)
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
