"""Makes a run of a model that another system trained."""

import json
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import Any

from keras_transformer.atomic_files import new_directory
from keras_transformer.decoding import BeamSearch
from keras_transformer.recipes.build import POSITIONS
from keras_transformer.recipes.presets import FINE_TUNING
from keras_transformer.recipes.run_files import TAGS_AND_ENDS, check_directory, is_decoder_file
from keras_transformer.recipes.settings import IMPORTED, SETTINGS, Settings
from keras_transformer.serving import Translator

# The files that tell the systems, in the order in which they are looked for: CTranslate2 has a
# config.json too. Argos has its model in a folder of the package.
SYSTEMS = {
    "model.bin": "ctranslate2",
    "decoder.yml": "marian",
    "*.decoder.yml": "marian",
    "model.npz": "marian",
    "config.json": "hugging-face",
    "model/model.bin": "ctranslate2",
}
# Each option of an import, and the systems whose loader takes it.
OPTIONS = {
    "source_language": ("hugging-face",),
    "target_language": ("hugging-face",),
    "source_tokenizer": ("marian", "ctranslate2"),
    "target_tokenizer": ("marian", "ctranslate2"),
    "tokenization": ("marian", "ctranslate2"),
    "tags": ("marian", "ctranslate2"),
    "source_tag": ("marian", "ctranslate2"),
    "target_tag": ("marian", "ctranslate2"),
    "source_eos": ("ctranslate2",),
}
# What a translator of an import has beside its search.
KEPT = (*TAGS_AND_ENDS, "max_length")


def find_system(directory: str | PathLike[str]) -> str:
    """Returns the system that wrote a directory, or raises `ValueError`."""
    if is_decoder_file(directory):
        return "marian"
    check_directory(directory)
    path = Path(directory)
    for file, system in SYSTEMS.items():
        if any(path.glob(file)):
            return system
    rule = ", ".join(f"{file} ({system})" for file, system in SYSTEMS.items())
    found = ", ".join(sorted(entry.name for entry in path.iterdir())[:8])
    raise ValueError(f"{path} must hold {rule}. Received: {found or 'an empty directory'}")


def load_imported(directory: str | PathLike[str], **options: Any) -> Translator:
    """Returns a `Translator` of a model of another system, whichever wrote the directory."""
    from keras_transformer import interop

    loaders: dict[str, Any] = {
        "ctranslate2": interop.load_ctranslate2,
        "marian": interop.load_marian,
        "hugging-face": interop.load_hugging_face,
    }
    return loaders[find_system(directory)](directory, **options)


def check_options(system: str, options: Iterable[str]) -> None:
    """Raises `ValueError` for an option that the loader of the system does not take."""
    for name in options:
        takers = OPTIONS.get(name, (system,))
        if system not in takers:
            listed = " or ".join(takers)
            raise ValueError(f"`{name}` needs a model of {listed}. Received: one of {system}")


def import_model(
    directory: str | PathLike[str], output: str | PathLike[str], **options: Any
) -> Translator:
    """Writes a run of a model of another system, which every command takes.

    Args:
        directory: what Hugging Face's `save_pretrained`, Marian or CTranslate2 wrote. Or one of
            several `*.decoder.yml` of Marian.
        output: a new directory. It appears whole or not at all.
        **options: arguments of the loader, such as `target_language`.

    Returns:
        The `Translator` of the model.

    Raises:
        ValueError: when the directory holds no model that fits, or there is something at `output`.
    """
    system = find_system(directory)
    check_options(system, options)
    # First, so that a model that is refused leaves nothing behind, no folder above the run either.
    translator = load_imported(directory, jit_compile=False, **options)
    with new_directory(output) as written:
        write_run(Path(written), system, translator)
    return translator


def write_run(folder: Path, system: str, translator: Translator) -> None:
    """Writes the files of a run."""
    model, search = translator.model, translator.search
    positions = [name for name, kind in POSITIONS.items() if type(model.position) is kind]
    settings = Settings.from_preset(
        format="text",
        model="imported",
        backend="tensorflow",
        vocab_size=max(model.vocabulary_sizes),
        separate_vocabularies=model.vocab_size is None,
        num_layers=model.num_encoder_layers,
        num_decoder_layers=model.num_decoder_layers,
        d_model=model.d_model,
        num_heads=model.num_encoder_heads,
        d_ff=model.encoder_d_ff,
        norm_first=model.norm_first,
        norm_epsilon=model.norm_epsilon,
        dropout=model.dropout,
        inner_dropout=model.attention_dropout,
        r_drop=model.r_drop,
        remat=model.remat,
        max_length=translator.max_source_length,
        beam_size=search.rows_per_sentence,
        length_penalty=search.length_penalty if isinstance(search, BeamSearch) else 0.0,
        split_sentences=translator.split_sentences,
        **FINE_TUNING,
        **({"position": positions[0]} if positions else {}),
    )
    model.save(folder / "model.keras")
    translator.source_tokenizer.save(folder / "source.tokenizer")
    translator.target_tokenizer.save(folder / "target.tokenizer")
    kept = {name: getattr(translator, name) for name in KEPT}
    imported = {
        "from": system,
        "model": model.get_config(),
        "unused_ids": list(model.unused_ids),
        "search": {"class": type(search).__name__, "settings": search.get_config()},
        "options": {name: value for name, value in kept.items() if value is not None},
    }
    text = json.dumps(imported, ensure_ascii=False, indent=2)
    (folder / IMPORTED).write_text(text, encoding="utf-8")
    (folder / SETTINGS).write_text(settings.to_toml(run={"imported": system}), encoding="utf-8")
