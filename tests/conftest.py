"""Settings of every test run: the backend, hypothesis, optional corpora, tests of one backend."""

import contextlib
import gc
import io
import os
import shutil
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.other_backends import reason_to_leave_out
from tests.selection import LONGEST_FILES, calls_the_trained, processes_for

# Read once, by the first import of keras or tensorflow: so before any test module.
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["CUDA_VISIBLE_DEVICES"] = ""

BACKEND = os.environ["KERAS_BACKEND"]
TESTS = Path(__file__).resolve().parent
SHARED = TESTS.parents[1] / "shared"  # corpora too large for the repository; may be absent

TENSORFLOW_ONLY = ("text", "serving", "interop", "recipes", "commands", "examples", "benchmarks")

# The first call of a compiled function is slow by nature, which is not a fault of the property.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# A property is tried on JAX and PyTorch with fewer examples: each new shape is compiled there anew.
settings.register_profile(
    "ci",
    parent=settings.get_profile("default"),
    derandomize=True,
    max_examples=100 if BACKEND == "tensorflow" else 25,
)
settings.load_profile("ci" if os.environ.get("CI") else "default")


def pytest_addoption(parser, pluginmanager):
    """Takes what pyproject.toml says to pytest-xdist where that is switched off."""
    if not pluginmanager.hasplugin("xdist"):
        for option in ("--numprocesses", "--dist"):
            parser.addoption(option, help="nothing without pytest-xdist")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config):
    """What `--numprocesses=auto` means for the paths that pytest was given."""
    folder = config.invocation_params.dir
    return processes_for([folder / argument.partition("::")[0] for argument in config.args])


def pytest_configure(config):
    """Lets files run in the order of their tests, where pytest-xdist begins with the most tests."""
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Gives a process a file at a time, and one of them all files of the trained translator."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid):
            file = super()._split_scope(nodeid)
            return "trained" if calls_the_trained(config.rootpath / file) else file

    return Scheduling(config, log) if config.option.dist == "loadfile" else None


def pytest_collection_modifyitems(items):
    """Begins with the longest files; skips what a backend leaves out, with the reason.

    The files of the trained translator are the first of all: one process runs them.
    """
    order = {TESTS / file: number for number, file in enumerate(LONGEST_FILES)}
    items.sort(
        key=lambda item: (not calls_the_trained(item.path), order.get(item.path, len(order)))
    )
    for item in items:
        if reason := reason_to_leave_out(item.nodeid, BACKEND):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Leaves out what would begin after the time of `.ci/run`, and notes it in its list."""
    deadline = os.environ.get("CI_DEADLINE")
    if deadline and time.time() > float(deadline):
        with open(os.environ["CI_SKIPPED"], "a", encoding="utf-8") as file:
            file.write(f"{BACKEND}: {item.nodeid}\n")
        pytest.skip("the time of .ci/run is over")


@pytest.fixture(scope="session")
def shared():
    """`shared("data/...")` is the path of a file of the shared corpora, or skips the test."""

    def path_of(relative):
        path = SHARED / relative
        if not path.exists():
            pytest.skip(f"needs shared/{relative} beside the repository")
        return path

    return path_of


@pytest.fixture(scope="session")
def exported_and_printed(tmp_path_factory):
    """One export of the trained translator for all tests that only read it."""
    # Only here: other backends have no TensorFlow.
    from tests.serving.trained import CARD, translator

    path = tmp_path_factory.mktemp("model") / "letters" / "3"
    translator()(["abc"])
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        translator().export(path, card=CARD)
    return path, printed.getvalue()


@pytest.fixture(scope="session")
def exported(exported_and_printed):
    """The directory of the export, whose model card is `trained.CARD`."""
    return exported_and_printed[0]


@pytest.fixture
def eagerly():
    """Runs every TensorFlow function as Python: tracing what is called once takes longer."""
    import tensorflow as tf

    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.fixture
def export_only(monkeypatch):
    """`export_only(*names)` makes translators export these signatures alone."""
    from keras_transformer.serving.string_functions import StringFunctions

    def choose(*names):
        signatures = property(lambda self: {name: getattr(self, name) for name in names})
        monkeypatch.setattr(StringFunctions, "signatures", signatures)

    return choose


@pytest.fixture
def browser():
    """A real browser, which the pages of the package are opened in."""
    webdriver = pytest.importorskip("selenium.webdriver")
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        pytest.skip("chromium and chromedriver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for argument in [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-sync",
        "--disable-background-networking",
        "--disable-component-update",
        "--window-size=900,900",
        "--disable-dev-shm-usage",
    ]:
        options.add_argument(argument)
    service = webdriver.ChromeService(shutil.which("chromedriver"))
    driver = webdriver.Chrome(options=options, service=service)
    yield driver
    driver.quit()


@pytest.fixture(scope="module", autouse=True)
def compiled_programs_freed():
    """Frees what JAX has compiled for a module of tests, when it is over.

    Each program holds memory mappings. Linux lets a process have 65,530 of them: the whole suite
    needs more, and the compiler that gets none crashes.
    """
    yield
    if BACKEND == "jax":
        import jax

        gc.collect()  # models hold their training steps
        jax.clear_caches()


class TensorFlowOnlyModule(pytest.Module):
    """A test module reported as skipped, with the reason, and never imported."""

    def collect(self):
        pytest.skip(f"only on the TensorFlow backend, this is {BACKEND}", allow_module_level=True)


def pytest_pycollect_makemodule(module_path, parent):
    """Stands in for the modules of folders that need TensorFlow, on the other backends."""
    if BACKEND == "tensorflow" or not module_path.is_relative_to(TESTS):
        return None
    if module_path.relative_to(TESTS).parts[0] not in TENSORFLOW_ONLY:
        return None
    return TensorFlowOnlyModule.from_parent(parent, path=module_path)
