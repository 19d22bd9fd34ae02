"""The models that train_translator.py trains: the Transformer, and the recurrent one before it."""

from keras_transformer import RecurrentSeq2Seq, Transformer
from positions import POSITIONS
from train_options import RECURRENT_SIZES, SIZES


def new_model(args, **vocabularies):
    """Returns the model of `args.model` and `args.size`, built; not compiled."""
    model = MODELS[args.model](args, **vocabularies)
    model.build()
    return model


def transformer(args, **vocabularies):
    """A Transformer of `args.size`."""
    size = SIZES[args.size]
    return Transformer(
        **vocabularies,
        num_layers=size["layers"],
        d_model=size["d_model"],
        num_heads=size["heads"],
        d_ff=size["d_ff"],
        dropout=args.dropout,
        norm_first=args.pre_norm,
        r_drop=args.r_drop,
        position=POSITIONS[args.position](),
        remat=args.remat,
    )


def recurrent(args, **vocabularies):
    """A recurrent encoder-decoder about as large as the Transformer of `args.size`."""
    size = RECURRENT_SIZES[args.size]
    return RecurrentSeq2Seq(
        **vocabularies,
        num_layers=size["layers"],
        d_model=size["d_model"],
        cell=args.cell,
        attention=None if args.similarity == "none" else args.similarity,
        dropout=args.dropout,
        scheduled_sampling=args.scheduled_sampling,
    )


MODELS = {"transformer": transformer, "recurrent": recurrent}


def describe(args):
    """What the model is, for the files of a run."""
    if args.model == "transformer":
        return f"Transformer, size {args.size}"
    sampling = f", scheduled sampling {args.scheduled_sampling:g}" * bool(args.scheduled_sampling)
    attention = {"none": "no attention"}.get(args.similarity, f"{args.similarity} attention")
    return f"recurrent, {args.cell.upper()}, {attention}{sampling}, size {args.size}"


def picture_title(args):
    """What the picture of the attention shows."""
    if args.model == "transformer":
        return "Where each head of the last decoder layer looks while it writes"
    return f"Where the decoder looks ({args.similarity})"
