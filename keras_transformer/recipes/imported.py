"""Makes a run of a model that another system trained."""

import json
from os import PathLike
from pathlib import Path
from typing import Any

from keras_transformer.atomic_files import new_directory
from keras_transformer.decoding import BeamSearch
from keras_transformer.recipes.run_files import IMPORTED, SETTINGS
from keras_transformer.recipes.settings import Settings
from keras_transformer.serving import Translator

# The file that tells each system, in the order in which they are looked for.
SYSTEMS = {
    "hugging-face": "config.json",
}


def system_of(directory: str | PathLike[str]) -> str:
    """Returns the system that wrote a directory, or raises `ValueError`."""
    path = Path(directory)
    if not path.is_dir():
        raise ValueError(f"{path}: there is no such directory. Check the path")
    for system, file in SYSTEMS.items():
        if (path / file).exists():
            return system
    rule = ", ".join(f"{file} ({system})" for system, file in SYSTEMS.items())
    found = ", ".join(sorted(entry.name for entry in path.iterdir())[:8])
    raise ValueError(f"{path} must hold {rule}. Received: {found or 'an empty directory'}")


def load_imported(directory: str | PathLike[str], **options: Any) -> Translator:
    """Returns a `Translator` of a model of another system, whichever wrote the directory."""
    from keras_transformer import interop

    loaders = {"hugging-face": interop.load_hugging_face}
    return loaders[system_of(directory)](directory, **options)


def import_model(
    directory: str | PathLike[str], output: str | PathLike[str], **options: Any
) -> Translator:
    """Writes a run of a model of another system, which every command takes.

    Args:
        directory: what Hugging Face's `save_pretrained` wrote.
        output: a new directory. It appears whole or not at all.
        **options: arguments of the loader, such as `target_language`.

    Returns:
        The `Translator` of the model.

    Raises:
        ValueError: when the directory holds no model that fits, or there is something at `output`.
    """
    system = system_of(directory)
    with new_directory(output) as written:
        translator = load_imported(directory, jit_compile=False, **options)
        write_run(Path(written), system, translator)
    return translator


def write_run(folder: Path, system: str, translator: Translator) -> None:
    """Writes the files of a run."""
    model, search = translator.model, translator.search
    settings = Settings.from_preset(
        format="text",
        model="imported",
        backend="tensorflow",
        d_model=model.d_model,
        max_length=translator.max_source_length,
        beam_size=search.rows_per_sentence,
        length_penalty=search.length_penalty if isinstance(search, BeamSearch) else 0.0,
        split_sentences=translator.split_sentences,
    )
    model.save(folder / "model.keras")
    translator.source_tokenizer.save(folder / "source.tokenizer")
    translator.target_tokenizer.save(folder / "target.tokenizer")
    tags = {name: getattr(translator, name, None) for name in ("source_tag", "target_tag")}
    imported = {
        "from": system,
        "model": model.get_config(),
        "search": {"class": type(search).__name__, "settings": search.get_config()},
        "tags": {name: tag for name, tag in tags.items() if tag},
    }
    text = json.dumps(imported, ensure_ascii=False, indent=2)
    (folder / IMPORTED).write_text(text, encoding="utf-8")
    (folder / SETTINGS).write_text(settings.to_toml(run={"imported": system}), encoding="utf-8")
