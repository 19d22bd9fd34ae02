"""What all models from sequence to sequence refuse before a training run."""

import inspect

import numpy as np
import pytest

from keras_transformer import MaskedCrossentropy, Transformer
from tests.backends import array

IDS = np.array([[2, 5, 6], [2, 7, 0]])


def compiled_model():
    model = Transformer(9, num_layers=1, d_model=4, num_heads=1, d_ff=4)
    model.compile("sgd", MaskedCrossentropy())
    return model


@pytest.mark.parametrize("method", ["fit", "train_on_batch"])
def test_class_weights_are_refused_with_what_to_give_instead(method):
    train = getattr(compiled_model(), method)
    with pytest.raises(ValueError, match="`class_weight` must be None") as caught:
        train((IDS, IDS), IDS, class_weight={5: 2.0})
    assert "sample_weight=weight_of_id[labels]" in str(caught.value)
    assert "Received: class_weight={5: 2.0}" in str(caught.value)


def test_class_weights_by_position_are_refused_too():
    model = compiled_model()
    given = (8, 1, 0, None, 0.0, None, True, {5: 2.0})  # batch_size to class_weight
    with pytest.raises(ValueError, match="`class_weight` must be None"):
        model.fit((IDS, IDS), IDS, *given)
    with pytest.raises(ValueError, match="`class_weight` must be None"):
        model.train_on_batch((IDS, IDS), IDS, None, {5: 2.0})
    assert "batch_size" in inspect.signature(model.fit).parameters


def test_smoothing_of_ids_that_the_model_never_writes_is_refused():
    sizes = {"num_layers": 1, "d_model": 4, "num_heads": 1, "d_ff": 4}
    model = Transformer(9, logits_bias=True, **sizes)
    assert model.unused_ids == ()  # not built yet
    model.build()
    assert model.unused_ids == ()
    model.target_embedding.bias.assign([0, -9, -1e9, 0, 0, 0, 0, 0, -1e9])
    assert model.unused_ids == (2, 8)
    model.compile("sgd", MaskedCrossentropy(0.1, unused_ids=[2]))
    with pytest.raises(ValueError, match="`unused_ids` of the loss must have the 1 ids") as caught:
        model.fit((IDS, IDS), IDS)
    assert "unused_ids=model.unused_ids). Received: unused_ids=[2]" in str(caught.value)
    for loss in (MaskedCrossentropy(), MaskedCrossentropy(0.1, unused_ids=model.unused_ids)):
        model.compile("sgd", loss)
        labels = np.where(IDS == 2, 3, IDS)
        history = model.fit((IDS, IDS), labels, verbose=0).history
        assert history["loss"][0] < 20
    assert model.unused_ids == (2, 8)


def test_a_table_of_the_ids_weights_is_what_to_give_instead():
    weight_of_id = np.ones(9, "float32")
    weight_of_id[5:] = 0.0  # no label counts but 2: the first of each sentence
    model = compiled_model()
    found = model.test_on_batch((IDS, IDS), IDS, sample_weight=weight_of_id[IDS])
    expected = MaskedCrossentropy()(IDS[:, :1], model((IDS, IDS))[:, :1])
    assert float(found) == pytest.approx(float(array(expected)), rel=1e-5)
