"""Serves an export on this machine, for trying it: TensorFlow Serving's REST form, and a page.

    python examples/serve_locally.py runs/dates-en-fr/export

Then open http://127.0.0.1:8501/ and type, or send requests as to TensorFlow Serving:

    curl -d '{"instances": ["Friday, November 20, 2026"]}' \\
        http://127.0.0.1:8501/v1/models/translator:predict

Needs the extra `serving`. Requests that come together are translated together; /metrics is for
Prometheus. Ctrl-C finishes what was begun and stops. For production use TensorFlow Serving:
docs/serving.md.
"""

import argparse
import asyncio
import contextlib
import os
import re
import signal
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

try:
    import prometheus_client
    import uvicorn
    from fastapi import FastAPI, Request, Response
    from fastapi.responses import HTMLResponse, JSONResponse
    from starlette.exceptions import HTTPException
except ImportError as missing:
    sys.exit(
        f"error: {missing.name} is missing. Install what a server needs with "
        '`pip install "keras-transformer-components[tensorflow,serving]"`'
    )

from rest_form import Refused, answer_of, inputs_of
from signature_runner import SignatureRunner, load_signatures, signature_definitions

PAGE = Path(__file__).with_name("serving_page.html")


def main():
    """Runs the program; returns its exit status."""
    args = parse_arguments()
    try:
        directory, version = newest_version(args.directory)
        print(f"Loading {directory} ...", flush=True)
        signatures = load_signatures(directory)
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")
    runner = SignatureRunner(signatures, args.batch_size, args.wait, args.queue)
    if args.warm_up:
        print("Compiling for one short text and for several ...", flush=True)
        runner.warm_up()
    if args.replay:
        print("Replaying the export's warm-up requests, each of which compiles ...", flush=True)
        try:
            print(f"Replayed {runner.replay(directory)} requests.", flush=True)
        except (ImportError, ValueError) as error:
            sys.exit(f"error: {error}")
    app = make_app(runner, signature_definitions(directory), args, version)
    config = uvicorn.Config(
        app,
        host=args.host,
        port=args.port,
        log_level="warning",
        timeout_graceful_shutdown=int(args.timeout) + 1,
    )
    server = AnnouncedServer(config)

    def at_signal(*_):  # uvicorn stops cleanly at it, and then sends it once more
        if not server.started:
            sys.exit(1)

    signal.signal(signal.SIGTERM, at_signal)
    with contextlib.suppress(KeyboardInterrupt):
        server.run()
    print("Stopped.", flush=True)
    return 0 if server.started else 1


class AnnouncedServer(uvicorn.Server):
    """Says so when it listens."""

    async def startup(self, sockets=None):
        """Starts, and tells where."""
        await super().startup(sockets)
        if self.started:
            address = f"http://{self.config.host}:{self.config.port}/"
            print(f"Serving on {address} ; Ctrl-C stops.", flush=True)


def make_app(runner, definitions, args, version):
    """The application: what each address answers."""
    name = args.name
    addresses = (f"/v1/models/{name}", f"/v1/models/{name}/versions/{version}")

    @contextlib.asynccontextmanager
    async def running(app):
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

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException):
        message = f"{request.method} {request.url.path}: {error.detail}"
        return JSONResponse({"error": message}, error.status_code, error.headers)

    @app.get("/", response_class=HTMLResponse)
    async def page():
        return PAGE.read_text(encoding="utf-8").replace("{{name}}", name)

    @app.get("/metrics")
    async def metrics():
        text = prometheus_client.generate_latest(registry)
        return Response(text, media_type=prometheus_client.CONTENT_TYPE_LATEST)

    @app.get(addresses[0])
    @app.get(addresses[1])
    async def status():
        ready = {"error_code": "OK", "error_message": ""}
        found = {"version": version, "state": "AVAILABLE", "status": ready}
        return {"model_version_status": [found]}

    @app.get(f"{addresses[0]}/metadata")
    @app.get(f"{addresses[1]}/metadata")
    async def metadata():
        spec = {"name": name, "signature_name": "", "version": version}
        return {"model_spec": spec, "metadata": {"signature_def": {"signature_def": definitions}}}

    @app.post(f"{addresses[0]}:predict")
    @app.post(f"{addresses[1]}:predict")
    async def predict(request: Request):
        signature = "unknown"
        with contextlib.ExitStack() as stack:
            try:
                body = await whole_body(request, args.max_bytes, args.timeout)
                signature, inputs, by_rows = inputs_of(body, runner.signatures)
                if len(next(iter(inputs.values()))) > args.max_texts:
                    raise Refused(413, f"a request must have at most {args.max_texts} texts")
                stack.enter_context(seconds.labels(signature).time())
                outputs = await runner.run(signature, inputs, args.timeout)
                answer, code = answer_of(outputs, by_rows), 200
            except Refused as refusal:
                answer, code = {"error": str(refusal)}, refusal.status
        requests.labels(signature, str(code)).inc()
        return JSONResponse(answer, code)

    return app


async def whole_body(request, max_bytes, timeout):
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


def newest_version(directory):
    """The SavedModel to serve, and its version: `directory` itself or its largest number."""
    path = Path(directory)
    if (path / "saved_model.pb").exists():
        return str(path), path.name if path.name.isdigit() else "1"
    versions = [child for child in path.glob("*") if (child / "saved_model.pb").exists()]
    versions = [child for child in versions if child.name.isdigit()]
    if not versions:
        raise ValueError(f"{directory} holds no SavedModel, nor do numbered directories in it")
    newest = max(versions, key=lambda child: int(child.name))
    return str(newest), newest.name


def parse_arguments():
    """Returns the command line's arguments."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", metavar="DIR", help="an export, or the directory of versions")
    parser.add_argument("--name", default="translator", help="the model's (default: translator)")
    parser.add_argument("--host", default="127.0.0.1", help="default: this machine alone")
    parser.add_argument("--port", type=int, default=8501, help="default: 8501")
    parser.add_argument("--batch-size", type=int, default=64, help="texts at once (default: 64)")
    parser.add_argument(
        "--wait", type=float, default=0.002, help="seconds for others to join (default: 0.002)"
    )
    parser.add_argument("--queue", type=int, default=256, help="requests waiting (default: 256)")
    parser.add_argument(
        "--max-bytes", type=int, default=2**20, help="of a request (default: 1 MiB)"
    )
    parser.add_argument("--max-texts", type=int, default=256, help="of a request (default: 256)")
    parser.add_argument("--timeout", type=float, default=60, help="seconds (default: 60)")
    parser.add_argument(
        "--replay",
        action="store_true",
        help="first run the export's warm-up requests, as TensorFlow Serving does: a minute or "
        "two, and nothing is compiled later",
    )
    parser.add_argument("--no-warm-up", dest="warm_up", action="store_false")
    args = parser.parse_args()
    if not re.fullmatch(r"[\w.-]+", args.name):
        parser.error("--name must be of letters, digits, points, dashes and underscores")
    for option in ("batch_size", "queue", "max_bytes", "max_texts", "timeout"):
        if not getattr(args, option) > 0:
            parser.error(f"--{option.replace('_', '-')} must be above 0")
    if not 0 <= args.port < 65536 or args.wait < 0:
        parser.error("--port must be from 0 to 65535 and --wait at least 0")
    return args


if __name__ == "__main__":
    sys.exit(main())
