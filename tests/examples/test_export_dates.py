"""The page that translates dates, in a real browser with onnxruntime-web."""

import functools
import http.server
import os
import shutil
import subprocess
import threading
from pathlib import Path

import keras
import pytest

from keras_transformer import GreedySearch, Transformer
from keras_transformer.serving import Translator
from keras_transformer.text import SentencePieceTokenizer

TEXTS = ["Friday, November 20, 2026", "  7/4/99 ", "\ue000a \u2581 né 🙂", "Saturday 2026-11-21"]

OPTIONS = {
    "search": GreedySearch(),
    "max_length": 12,
    "max_source_length": 64,
    "jit_compile": False,
}


@pytest.fixture
def runtime():
    """The files of onnxruntime-web: those of the variable ONNXRUNTIME_WEB, or of npm."""
    folder = os.environ.get("ONNXRUNTIME_WEB")
    if folder is None and shutil.which("npm"):
        root = subprocess.check_output(["npm", "root", "-g"], encoding="utf-8")
        folder = f"{root.strip()}/onnxruntime-web/dist"
    if folder is None or not Path(folder, "ort.wasm.min.js").exists():
        pytest.skip("needs onnxruntime-web: the variable ONNXRUNTIME_WEB is its folder `dist`")
    return Path(folder)


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files, and says nothing of it."""

    extensions_map = {  # noqa: RUF012  (as the base class has it)
        **http.server.SimpleHTTPRequestHandler.extensions_map,
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
    }

    def log_message(self, format, *args):
        """Nothing."""


@pytest.fixture
def serve():
    """`serve(folder)` serves its files on a free port; returns the address."""
    servers = []

    def start(folder):
        handler = functools.partial(Quiet, directory=folder)
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def translator():
    """A random model of dates: what it writes is long and has bytes of many characters."""
    tokenizer = SentencePieceTokenizer.train(
        TEXTS * 9, 330, shrink_to_fit=True, lossless=True, split_digits=True
    )
    keras.utils.set_random_seed(8)
    model = Transformer(tokenizer.vocab_size, num_layers=1, d_model=32, num_heads=4, d_ff=64)
    return Translator(model, tokenizer, **OPTIONS)


@pytest.mark.slow
def test_the_page_translates_as_the_translator(runtime, browser, serve, translator, tmp_path):
    from selenium.webdriver.support.ui import WebDriverWait

    from export_dates import write_page

    write_page(translator, tmp_path / "page")
    shutil.copytree(runtime, tmp_path / "page" / "onnxruntime-web")
    browser.get(serve(tmp_path / "page"))
    state = browser.find_element("id", "state")
    wait = WebDriverWait(browser, 120)
    wait.until(lambda _: state.text == "ready")
    source = browser.find_element("id", "source")
    lines = "\n".join(TEXTS)
    browser.execute_script("arguments[0].value = arguments[1]", source, lines)
    browser.find_element("id", "translate").click()
    wait.until(lambda _: state.text == "done")
    script = "return document.getElementById('target').textContent"
    assert browser.execute_script(script).split("\n") == translator(TEXTS)

    browser.execute_script("arguments[0].value = arguments[1]", source, f"{TEXTS[0]}\n{'x' * 99}")
    browser.find_element("id", "translate").click()
    wait.until(lambda _: state.text.startswith("a line may have 64 tokens. Received: "))
    assert browser.execute_script(script) == translator(TEXTS[:1])[0]


def untrained(**settings):
    """A translator of a vocabulary with these settings, over a model without training."""
    settings = {"lossless": True, **settings}
    tokenizer = SentencePieceTokenizer.train(TEXTS * 9, 330, shrink_to_fit=True, **settings)
    model = Transformer(tokenizer.vocab_size, num_layers=1, d_model=8, num_heads=2, d_ff=8)
    return tokenizer, model


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "options", "message"),
    [
        ({"lossless": False}, {}, "lossless SentencePiece.*source Sentence"),
        ({"model_type": "unigram"}, {}, "'bpe'.*of the source of type 'unigram'"),
        ({"user_defined_symbols": ["<x>"]}, {}, "no user-defined symbols.*'<x>'"),
        ({}, {"source_eos": False}, "`source_eos` to be True.*False"),
    ],
)
def test_what_the_page_reads_otherwise_is_refused(settings, options, message, tmp_path):
    from export_dates import write_page

    tokenizer, model = untrained(**settings)
    with pytest.raises(ValueError, match=message):
        write_page(Translator(model, tokenizer, **OPTIONS, **options), tmp_path / "page")
    assert not (tmp_path / "page").exists()
