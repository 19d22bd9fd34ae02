"""Serves an export on this machine: TensorFlow Serving's REST form, a page, and metrics.

Requests that come together are translated together. The command `keras-transformer serve` runs it.
For production use TensorFlow Serving.
"""

import asyncio
import contextlib
import json
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import prometheus_client
import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.exceptions import HTTPException

from keras_transformer.serving.rest_form import Refused, make_answer, read_inputs
from keras_transformer.serving.signature_runner import (
    SignatureRunner,
    load_signatures,
    signature_definitions,
)

PAGE = Path(__file__).with_suffix(".html")


class ServerOptions(NamedTuple):
    """How the server answers; sizes are limits of one request."""

    name: str = "translator"  # the model's, in the addresses
    host: str = "127.0.0.1"  # this machine alone
    port: int = 8501
    batch_size: int = 64  # texts translated at once
    wait: float = 0.002  # seconds for other requests to join
    queue: int = 256  # requests waiting
    max_bytes: int = 2**20
    max_texts: int = 256
    timeout: float = 60  # seconds
    warm_up: bool = True  # whether the first requests find their shapes compiled
    replay: bool = False  # whether the export's own warm-up requests run first


def serve(
    directory: str | PathLike[str], version: str, options: ServerOptions, say: Callable[[str], None]
) -> int:
    """Serves the SavedModel in `directory` until a signal; returns the exit status."""
    say(f"Loading {directory} ...")
    signatures = load_signatures(directory)
    runner = SignatureRunner(signatures, options.batch_size, options.wait, options.queue)
    if options.warm_up:
        say("Compiling for one short text and for several: a minute, or more on a slow machine ...")
        begun = time.monotonic()
        runner.warm_up()
        say(f"Compiled in {time.monotonic() - begun:.0f} seconds.")
    if options.replay:
        say("Replaying the export's warm-up requests; each compiles ...")
        say(f"Replayed {runner.replay(directory)} requests.")
    app = make_app(runner, signature_definitions(directory), options, version)
    config = uvicorn.Config(
        app,
        host=options.host,
        port=options.port,
        log_level="warning",
        timeout_graceful_shutdown=int(options.timeout) + 1,
    )
    server = AnnouncedServer(config, f"{make_addresses(options.name, version)[0]}:predict")

    def at_signal(*_: Any) -> None:  # uvicorn stops cleanly at it, and then sends it once more
        if not server.started:
            sys.exit(1)

    signal.signal(signal.SIGTERM, at_signal)
    with contextlib.suppress(KeyboardInterrupt):
        server.run()
    say("Stopped.")
    return 0 if server.started else 1


class AnnouncedServer(uvicorn.Server):
    """Says so when it listens, with a request to try."""

    def __init__(self, config: uvicorn.Config, predict: str) -> None:
        super().__init__(config)
        self.predict = predict

    async def startup(self, sockets: Any = None) -> None:
        """Starts, and tells where."""
        await super().startup(sockets)
        if self.started:
            host = f"[{self.config.host}]" if ":" in self.config.host else self.config.host
            port = self.servers[0].sockets[0].getsockname()[1]  # --port 0 takes any that is free
            address = f"http://{host}:{port}/"
            print(f"Serving on {address} ; Ctrl-C stops.", flush=True)
            body = json.dumps({"instances": ["A text."]})
            print(f"  curl -d '{body}' {address.rstrip('/')}{self.predict}", flush=True)


def make_app(
    runner: SignatureRunner, definitions: dict[str, Any], options: ServerOptions, version: str
) -> FastAPI:
    """The application: what each address answers."""
    addresses = make_addresses(options.name, version)

    @contextlib.asynccontextmanager
    async def running(app: FastAPI) -> AsyncIterator[None]:
        async with runner:
            yield

    app = FastAPI(lifespan=running, docs_url=None, redoc_url=None, openapi_url=None)
    registry = prometheus_client.CollectorRegistry()
    requests = prometheus_client.Counter(
        "requests", "Requests answered, by signature and status.", ["signature", "status"],
        registry=registry,
    )  # fmt: skip
    seconds = prometheus_client.Histogram(
        "request_seconds", "From a request's body to its answer.", ["signature"], registry=registry
    )
    runner.count_in(registry)

    @app.get("/metrics")
    async def metrics() -> Response:
        text = prometheus_client.generate_latest(registry)
        return Response(text, media_type=prometheus_client.CONTENT_TYPE_LATEST)

    @app.post(f"{addresses[0]}:predict")
    @app.post(f"{addresses[1]}:predict")
    async def predict(request: Request) -> JSONResponse:
        signature = "unknown"
        with contextlib.ExitStack() as stack:
            try:
                body = await whole_body(request, options.max_bytes, options.timeout)
                signature, inputs, by_rows = read_inputs(body, runner.signatures)
                if len(next(iter(inputs.values()))) > options.max_texts:
                    raise Refused(413, f"a request must have at most {options.max_texts} texts")
                stack.enter_context(seconds.labels(signature).time())
                outputs = await runner.run(signature, inputs, options.timeout)
                answer, code = make_answer(outputs, by_rows), 200
            except Refused as refusal:
                answer, code = {"error": str(refusal)}, refusal.status
        requests.labels(signature, str(code)).inc()
        return JSONResponse(answer, code)

    describe_model(app, definitions, options.name, version)
    return app


def make_addresses(name: str, version: str) -> tuple[str, str]:
    """The addresses of a model: of its newest version, and of this one."""
    return f"/v1/models/{name}", f"/v1/models/{name}/versions/{version}"


def describe_model(app: FastAPI, definitions: dict[str, Any], name: str, version: str) -> None:
    """Adds what the application tells of the model: the page, status, metadata, and refusals."""
    addresses = make_addresses(name, version)

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> JSONResponse:
        message = f"{request.method} {request.url.path}: {error.detail}"
        return JSONResponse({"error": message}, error.status_code, error.headers)

    @app.get("/", response_class=HTMLResponse)
    async def page() -> str:
        inputs = definitions.get("translate", {}).get("inputs", {})
        tags = {key: "" for key in ("source_tag", "target_tag") if key in inputs}
        text = PAGE.read_text(encoding="utf-8")
        return text.replace("{{name}}", name).replace("{{tags}}", json.dumps(tags))

    @app.get(addresses[0])
    @app.get(addresses[1])
    async def status() -> dict[str, Any]:
        ready = {"error_code": "OK", "error_message": ""}
        found = {"version": version, "state": "AVAILABLE", "status": ready}
        return {"model_version_status": [found]}

    @app.get(f"{addresses[0]}/metadata")
    @app.get(f"{addresses[1]}/metadata")
    async def metadata() -> dict[str, Any]:
        spec = {"name": name, "signature_name": "", "version": version}
        return {"model_spec": spec, "metadata": {"signature_def": {"signature_def": definitions}}}


async def whole_body(request: Request, max_bytes: int, timeout: float) -> bytes:
    """The bytes of a request, no more of them and for no longer than is allowed."""
    body = bytearray()
    try:
        async with asyncio.timeout(timeout):
            async for part in request.stream():
                body += part
                if len(body) > max_bytes:
                    raise Refused(413, f"a request must have at most {max_bytes} bytes")
    except TimeoutError:
        raise Refused(408, f"the request did not come within {timeout:g} seconds") from None
    return bytes(body)
