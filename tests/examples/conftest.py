"""A real browser for the pages of the examples, and a small corpus for their trainings."""

import random
import shutil

import pytest


@pytest.fixture
def browser():
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


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Two files of short sentences, the target each word of the source backwards."""
    directory = tmp_path_factory.mktemp("corpus")
    generator = random.Random(7)
    words = ["red", "old", "tall", "cat", "dog", "bird", "sees", "likes", "a", "the", "my"]
    sources = [" ".join(generator.choices(words, k=generator.randint(2, 6))) for _ in range(600)]
    targets = [" ".join(word[::-1] for word in source.split()) for source in sources]
    sources[5], targets[9] = "", " "
    (directory / "test.en").write_text(
        "".join(f"{line}\n" for line in [*sources[:40]]), encoding="utf-8"
    )
    (directory / "test.xx").write_text(
        "".join(f"{line}\n" for line in [*targets[:40]]), encoding="utf-8"
    )
    (directory / "text.en").write_text("".join(f"{line}\n" for line in sources), encoding="utf-8")
    (directory / "text.xx").write_text("".join(f"{line}\n" for line in targets), encoding="utf-8")
    return directory
