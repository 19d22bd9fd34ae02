"""The local server as a user runs it: a real server, real requests, a real browser."""

import asyncio
import concurrent.futures
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import numpy as np
import pytest

from tests.serving.trained import translator, words

pytest.importorskip("fastapi", reason="needs the extra `serving`")

SERVE = (sys.executable, "-m", "keras_transformer", "serve")
pytestmark = pytest.mark.slow


class Server:
    """A running server on a free port."""

    def __init__(self, directory, *arguments):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.process = subprocess.Popen(
            [*SERVE, directory, "--port", str(self.port), *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="utf-8",
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        lines = []
        while not lines or "Serving on" not in lines[-1]:
            lines.append(self.process.stdout.readline())
            assert lines[-1], f"the server ended: {lines}"
        self.lines = lines
        self.request = self.process.stdout.readline()
        address = f"http://127.0.0.1:{self.port}"
        for _ in range(100):  # it says so just before it listens
            try:
                urllib.request.urlopen(f"{address}/metrics").close()
                break
            except urllib.error.URLError:
                time.sleep(0.1)
        self.address = address

    def get(self, path):
        with urllib.request.urlopen(f"{self.address}{path}", timeout=60) as answer:
            return answer.read().decode()

    def post(self, body, path="/v1/models/translator:predict"):
        """Status and JSON of the answer to `body`, bytes or what becomes JSON."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        try:
            request = urllib.request.Request(f"{self.address}{path}", data)
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        out, _ = self.process.communicate(timeout=60)
        return self.process.returncode, out


@pytest.fixture(scope="module")
def versions(tmp_path_factory, exported):
    path = tmp_path_factory.mktemp("serving") / "letters"
    shutil.copytree(exported, path / "2")
    (path / "1").mkdir()  # an older version, and half a one
    (path / ".export-x").mkdir()
    return path


@pytest.fixture(scope="module")
def server(versions):
    running = Server(versions, "--max-bytes", 5000)
    yield running
    running.stop()


def test_it_answers_as_python_does_in_both_forms(server):
    texts = [*words(5, seed=41), "", "é"]
    expected = translator()(texts)
    status, rows = server.post({"instances": texts})
    assert status == 200
    assert [row["translation"] for row in rows["predictions"]] == expected
    status, columns = server.post({"signature_name": "n_best", "inputs": {"text": texts}})
    assert [row[0] for row in columns["outputs"]["translations"]] == expected
    request = {"text": "abc", "length_penalty": -1, "max_length": 0, "num_hypotheses": 1}
    request["split_sentences"] = -1
    status, rows = server.post(
        {"signature_name": "translate", "instances": [{**request, "prefix": "G"}]}
    )
    assert rows["predictions"][0]["translations"][0].startswith("G")
    status, rows = server.post({"instances": ["abc"]}, "/v1/models/translator/versions/2:predict")
    assert rows["predictions"][0]["translation"] == "CBA"


def test_it_says_what_it_does_before_it_listens(server):
    loading, compiling, compiled, serving = server.lines
    assert loading.startswith("Loading ")
    assert compiling.startswith("Compiling for one short text and for several")
    assert re.fullmatch(r"Compiled in \d+ seconds\.\n", compiled)
    assert serving.startswith("Serving on http://127.0.0.1:")


def test_it_prints_a_request_that_can_be_pasted(server):
    curl, option, body, address = shlex.split(server.request)
    assert (curl, option) == ("curl", "-d")
    assert address.startswith(f"{server.address}/")
    status, answer = server.post(body.encode(), address.removeprefix(server.address))
    assert status == 200
    assert [sorted(row) for row in answer["predictions"]] == [["score", "translation", "truncated"]]


def test_it_tells_what_it_serves(server):
    (version,) = json.loads(server.get("/v1/models/translator"))["model_version_status"]
    assert version["version"] == "2"
    assert version["state"] == "AVAILABLE"
    for address in ("/v1/models/translator", "/v1/models/translator/versions/2"):
        # TensorFlow Serving's form: the map of the protocol buffer has the name of its field, too.
        metadata = json.loads(server.get(f"{address}/metadata"))["metadata"]
        signatures = metadata["signature_def"]["signature_def"]
        described = signatures["n_best"]["outputs"]["scores"]
        assert described["dtype"] == "DT_FLOAT"
        assert [size["size"] for size in described["tensor_shape"]["dim"]] == ["-1", "3"]
        assert signatures["n_best"]["method_name"] == "tensorflow/serving/predict"


def test_bad_requests_are_refused_and_good_ones_go_on(server):
    assert server.post(b"no json")[0] == 400
    assert server.post({"instances": ["a"], "signature_name": "none"})[0] == 400
    status, answer = server.post({"instances": ["a" * 6000]})
    assert (status, answer) == (413, {"error": "a request must have at most 5000 bytes"})
    assert server.post({"instances": ["a"] * 257})[0] == 413
    path = "/v1/models/other:predict"
    missing = {"error": f"POST {path}: Not Found"}
    assert server.post({"instances": ["abc"]}, path) == (404, missing)
    assert server.post({"instances": ["abc"]})[1]["predictions"][0]["translation"] == "CBA"


def test_many_clients_get_what_one_gets_and_are_counted(server):
    texts = words(60, seed=43)
    expected = translator()(texts)
    with concurrent.futures.ThreadPoolExecutor(16) as clients:
        answers = list(clients.map(lambda text: server.post({"instances": [text]}), texts))
    assert [answer["predictions"][0]["translation"] for _, answer in answers] == expected
    metrics = server.get("/metrics")
    pattern = r'requests_total{signature="serving_default",status="200"} (\d+)'
    assert int(re.search(pattern, metrics)[1]) >= 60
    batches = float(re.search(r"batch_rows_count (\S+)", metrics)[1])
    texts_translated = float(re.search(r"batch_rows_sum (\S+)", metrics)[1])
    assert batches < texts_translated - 20  # many went together


def test_it_stops_cleanly_by_ctrl_c(versions):
    assert_stops_cleanly(Server(versions, "--no-warm-up"), signal.SIGINT)


def assert_stops_cleanly(running, number):
    status, out = running.stop(number)
    assert status == 0
    assert out.endswith("Stopped.\n")


def test_after_a_replay_nothing_is_compiled_and_a_signal_stops_it_cleanly(versions):
    pytest.importorskip("tensorflow_serving")
    server = Server(versions, "--replay")
    try:
        before = compiled_shapes(server)
        for rows in (1, 3, 8, 40):
            for length in (1, 8):
                assert server.post({"instances": ["abcdefgh"[:length]] * rows})[0] == 200
        assert compiled_shapes(server) == before > 2
        assert_stops_cleanly(server, signal.SIGTERM)
    finally:
        server.process.kill()


def compiled_shapes(server):
    return float(re.search(r"^compiled_shapes (\S+)$", server.get("/metrics"), re.M)[1])


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_the_address_that_is_told_answers_at_a_free_port_and_with_ipv6(host, capsys):
    import uvicorn
    from fastapi import FastAPI

    from keras_transformer.serving.local_server import AnnouncedServer

    app = FastAPI()
    app.get("/")(lambda: "here")

    async def answer():
        config = uvicorn.Config(app, host=host, port=0, log_config=None)
        server = AnnouncedServer(config, "/v1/models/translator:predict")
        running = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        told = capsys.readouterr().out
        address, request = re.findall(r"http://\S+", told)
        try:
            page = await asyncio.to_thread(urllib.request.urlopen, address)
            return request.removeprefix(address), page.read()
        finally:
            server.should_exit = True
            await running

    assert asyncio.run(answer()) == ("v1/models/translator:predict", b'"here"')


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["nowhere"], "there is no such directory"), (["x", "--port", "99999"], "--port must be")],
)
def test_what_it_cannot_serve_it_says(arguments, message):
    done = subprocess.run([*SERVE, *arguments], capture_output=True, encoding="utf-8", check=False)
    assert done.returncode != 0
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_person_types_and_sees_hypotheses_and_alignment(server, browser, tmp_path):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.support.ui import WebDriverWait

    def all_of(selector):
        return browser.find_elements("css selector", selector)

    def texts_of(selector):  # at once: the page may change between two questions
        script = "return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent)"
        return browser.execute_script(script, selector)

    def translate(text):
        (box,) = all_of("#text")
        box.clear()
        box.send_keys(text)
        all_of("#go")[0].click()

    browser.get(server.address)
    translate("fab<b>")
    WebDriverWait(browser, 60).until(lambda _: all_of("#alignment path"))
    translate("abcd")
    (expected,) = translator()(["abcd"])
    WebDriverWait(browser, 60).until(
        lambda _: (
            texts_of("#hypotheses td:first-child")[:1] == [expected]
            and texts_of("#alignment .row") == ["abcd", expected]
        )
    )
    (hypotheses,) = translator().n_best(["abcd"])
    assert texts_of("#hypotheses td:first-child") == [text for text, _ in hypotheses]
    scores = [float(text) for text in texts_of("#hypotheses td.number")]
    np.testing.assert_allclose(scores, [score for _, score in hypotheses], atol=2e-3)
    # Pointing at the source's last letter lights the translation's first.
    ActionChains(browser).move_to_element(all_of(".piece")[3]).perform()
    assert texts_of(".piece.lit")[-1] == "D"
    assert len(all_of("path.lit")) == 1
    browser.save_screenshot(str(tmp_path / "page.png"))
    translate("a" * 600)
    WebDriverWait(browser, 60).until(
        lambda _: "too long" in browser.find_element("id", "message").text
    )
    assert not browser.find_element("id", "answer").is_displayed()
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
