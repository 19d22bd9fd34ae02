"""The embeddings of a model, tied as its vocabularies allow."""

from keras_transformer.layers import TokenEmbedding


def new_embeddings(model):
    """The source's and the target's: one layer for a joint vocabulary, or one for each."""
    options = {"d_model": model.d_model, "pad_id": model.pad_id, "dtype": model.dtype_policy}
    if model.vocab_size:
        return 2 * (TokenEmbedding(model.vocab_size, name="embedding", **options),)
    return tuple(
        TokenEmbedding(getattr(model, f"{side}_vocab_size"), name=f"{side}_embedding", **options)
        for side in ("source", "target")
    )
