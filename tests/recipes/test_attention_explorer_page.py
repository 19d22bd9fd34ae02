"""The page of the explorer in a real browser: pointed at, clicked, and stepped through."""

import numpy as np
import pytest

from keras_transformer import BeamSearch, RecurrentSeq2Seq
from keras_transformer.recipes.attention_explorer import explore, make_page
from keras_transformer.serving import Translator
from keras_transformer.text import CharacterTokenizer
from tests.backends import randomise
from tests.recipes.explored_models import explored, transformer
from tests.serving.trained import translator

pytestmark = pytest.mark.slow
SENTENCE, BEAM = "fab", 4


@pytest.fixture(scope="module")
def data():
    """What the page shows of a translator that writes letters in capitals, reversed."""
    search = BeamSearch(BEAM)
    return explore(Translator(**{**translator().settings, "search": search}), SENTENCE)


class Page:
    """The page in a browser, and what a person asks of it."""

    def __init__(self, browser, file):
        self.browser = browser
        browser.get(file.as_uri())

    def all(self, selector):
        return self.browser.find_elements("css selector", selector)

    def texts(self, selector):
        script = "return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent)"
        return self.browser.execute_script(script, selector)

    def point_at(self, selector):
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.browser).move_to_element(self.all(selector)[0]).perform()

    def click(self, selector):
        (element,) = self.all(selector)
        # The bar of steps lies over the end of the page.
        script = "arguments[0].scrollIntoView({ block: 'center' })"
        self.browser.execute_script(script, element)
        element.click()

    def press(self, *keys):
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.browser).send_keys(*keys).perform()

    def choose(self, option):
        self.click(f"label:has([value={option}])")

    def choose_layer(self, layer):
        self.click(f"label:has([name=layer][value='{layer}'])")

    def bars(self):
        """The per cents beside the bars of all heads."""
        return [float(text.removesuffix("\u00a0%")) for text in self.texts(".bars > span")]

    def reading(self):
        return self.texts("#reading")[0].replace("\u00a0", " ")

    def shades(self, side):
        """The per cents below the words of a side, 0 where none is written."""
        return [float(text or 0) for text in self.texts(f"#{side} .word small")]


@pytest.fixture
def opened(browser, tmp_path):
    """Opens the page of some data; in the end no script may have complained."""

    def open_page(data):
        file = tmp_path / "page.html"
        file.write_text(make_page(data), encoding="utf-8")
        return Page(browser, file)

    yield open_page
    assert [entry for entry in browser.get_log("browser") if entry["level"] != "INFO"] == []


@pytest.fixture
def page(opened, data):
    return opened(data)


def path_of(data):
    """The nodes of the best translation, the first one nothing."""
    path = [data["steps"][-1]["finished"][0]]
    while data["nodes"][path[0]]["parent"] >= 0:
        path.insert(0, data["nodes"][path[0]]["parent"])
    return [data["nodes"][place] for place in path]


def test_pointing_at_a_word_shows_where_the_heads_look(page, data):
    assert page.texts("#source .word span") == [*SENTENCE, "</s>"]
    assert page.texts("#target .word span") == ["<s>", *"BAF", "</s>"]
    nodes = path_of(data)
    for number in (1, 2, 3):
        page.point_at(f"#target .word:nth-child({number + 1})")
        weights = np.mean(nodes[number - 1]["weights"]["cross"][-1], axis=0)
        np.testing.assert_allclose(page.shades("source"), weights / 10, atol=1.0)
        assert page.reading().startswith(f"Writing {'BAF'[number - 1]}, layer 1 looks")
    # The other way: who looks at the f, which the last letter is made from.
    page.point_at("#source .word:nth-child(1)")
    expected = [np.mean(node["weights"]["cross"][-1], axis=0)[0] / 10 for node in nodes[:-1]]
    np.testing.assert_allclose(page.shades("target")[1:], expected, atol=1.0)
    assert page.shades("target")[3] > 50
    assert page.reading().startswith("f is looked at in layer 1")


def test_each_view_shows_its_own_weights(page, data):
    page.choose("encoder")
    page.point_at("#source .word:nth-child(2)")
    weights = np.mean([head[1] for head in data["encoder"][0]], axis=0) / 10
    np.testing.assert_allclose(page.shades("source"), weights, atol=1.0)
    page.choose("decoder")
    page.point_at("#target .word:nth-child(4)")
    weights = np.mean(path_of(data)[2]["weights"]["decoder"][0], axis=0) / 10
    np.testing.assert_allclose(page.shades("target")[:3], weights, atol=1.0)
    assert page.shades("target")[3:] == [0, 0]  # what is not written yet


def test_each_layer_shows_its_own_weights_in_each_view(opened):
    data = explored(transformer(seed=1))  # which writes as much as it can
    page, (first, second, *_) = opened(data), path_of(data)
    assert page.texts("#about")[0].endswith("2 layers, 3 heads.")
    page.choose("bars")
    of_view = {  # the word to point at, and by layer where each head looks for it
        "encoder": ("#source .word:nth-child(2)", np.array(data["encoder"])[:, :, 1]),
        "cross": ("#target .word:nth-child(2)", np.array(first["weights"]["cross"])),
        "decoder": ("#target .word:nth-child(3)", np.array(second["weights"]["decoder"])),
    }
    for view, (word, weights) in of_view.items():
        assert np.abs(weights[0] - weights[1]).max() > 20  # they can be told apart
        page.choose(view)
        for layer in (0, 1, 0):
            page.choose_layer(layer)
            page.point_at(word)
            np.testing.assert_allclose(page.bars(), weights[layer].ravel() / 10, atol=0.51)
            side = "target" if view == "decoder" else "source"
            mean = weights[layer].mean(axis=0) / 10
            np.testing.assert_allclose(page.shades(side)[: len(mean)], mean, atol=1.0)
            assert f"layer {layer + 1} looks (the mean of 3 heads)" in page.reading()
    page.choose("maps")
    page.choose_layer(1)
    names = [canvas.get_attribute("aria-label") for canvas in page.all("canvas")]
    assert names == [f"Weights of head {n}, layer 2: Translation reads itself" for n in (1, 2, 3)]


@pytest.mark.parametrize("sentence", ["fab", "سلام"], ids=["latin", "arabic"])
def test_a_recurrent_model_has_one_view_and_words_run_as_they_are_read(opened, sentence):
    tokenizer = CharacterTokenizer.train([sentence])
    model = RecurrentSeq2Seq(tokenizer.vocab_size, d_model=10)
    model.build()
    made = Translator(randomise(model, scale=0.5), tokenizer, search=BeamSearch(BEAM))
    data = explore(made, sentence)
    page, (first, *_) = opened(data), path_of(data)
    assert page.texts("#source .word span") == [*sentence, "</s>"]
    assert page.all("[name=view]")[0].get_attribute("value") == "cross"
    assert len(page.all("[name=view]")) == len(page.all("[name=layer]")) == 1
    lefts = [word.rect["x"] for word in page.all("#source .word")]
    assert lefts == sorted(lefts, reverse=sentence != "fab")
    page.point_at("#target .word:nth-child(2)")
    (((weights,),),) = [first["weights"]["cross"]]
    np.testing.assert_allclose(page.shades("source"), np.array(weights) / 10, atol=1.0)
    assert "layer 1 looks (its head) at" in page.reading()
    page.point_at("#source .word:nth-child(1)")
    assert page.reading().startswith(f"{sentence[0]} is looked at in layer 1")


def test_bytes_that_are_letters_are_shown_as_such(opened, data):
    source = ["▁a", "<0x3C>", "<0xC3>", "<0x0A>"]
    page = opened({**data, "source": source})
    assert page.texts("#source .word span") == ["a", "<", "<0xC3>", "<0x0A>"]


def test_a_click_keeps_a_word_and_a_head_and_escape_lets_go(page, data):
    word = "#target .word:nth-child(2)"
    page.click(word)
    page.point_at("h1")
    assert page.reading().startswith("Writing B")
    assert page.all(word)[0].get_attribute("aria-pressed") == "true"
    page.click(".head:nth-child(2) > button")
    weights = path_of(data)[0]["weights"]["cross"][0][1]
    np.testing.assert_allclose(page.shades("source"), np.array(weights) / 10, atol=1.0)
    assert "head 2" in page.reading()
    page.click("#forward")
    page.click(word)
    page.point_at("h1")
    assert page.reading().startswith("Writing B")
    page.press("\ue00c")  # Escape
    assert page.reading().startswith("Writing A")  # the word of the step


def test_bars_say_each_heads_weights_in_figures(page, data):
    page.choose("bars")
    page.point_at("#target .word:nth-child(2)")
    weights = path_of(data)[0]["weights"]["cross"][0]
    np.testing.assert_allclose(page.bars(), np.ravel(weights) / 10, atol=0.5)
    page.browser.set_window_size(400, 800)
    width = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.browser.execute_script(width) == 0


def test_a_map_has_a_row_for_each_word_to_point_at(page):
    from selenium.webdriver.common.action_chains import ActionChains

    (canvas,) = page.all(".head:nth-child(1) canvas")
    drawn = "return arguments[0].getContext('2d').getImageData(0, 0, 200, 200).data.some((x) => x)"
    assert page.browser.execute_script(drawn, canvas)
    corner = (-canvas.size["width"] // 2 + 72, -canvas.size["height"] // 2 + 72)
    ActionChains(page.browser).move_to_element_with_offset(canvas, *corner).perform()
    assert page.reading().startswith("Writing B")
    assert canvas.get_attribute("title").startswith("B → f: ")


def test_the_steps_show_the_beam_and_what_goes_on(page, data):
    assert page.texts("#position") == [f"Step 0 of {len(data['steps']) - 1}"]
    for number, step in enumerate(data["steps"]):
        assert page.texts("#position")[0].startswith(f"Step {number} ")
        totals = page.texts("#live .hypothesis > div > .number")
        expected = [data["nodes"][place]["total"] for place in step["live"]]
        np.testing.assert_allclose([shown(text) for text in totals], expected, atol=0.006)
        scores = page.texts("#finished .hypothesis > div > .number")
        expected = [data["nodes"][place]["score"] for place in step["finished"]]
        np.testing.assert_allclose([shown(text) for text in scores], expected, atol=0.006)
        names = page.texts("#finished bdi")
        assert names == [data["nodes"][place]["text"] or "(nothing)" for place in step["finished"]]
        taken = page.texts("#live .taken")
        if number + 1 < len(data["steps"]):
            after = data["steps"][number + 1]
            going_on = sorted(int(text.split("→ ")[1]) for text in taken if "→" in text)
            assert going_on == list(range(1, len(after["live"]) + 1))
            ended = len(set(after["finished"]) - set(step["finished"]))
            assert sum(text.endswith("✓") for text in taken) == ended
        page.press("\ue014")  # the right arrow
    assert not page.all("#forward")[0].is_enabled()
    page.click("#back")
    assert page.texts("#position")[0].startswith(f"Step {len(data['steps']) - 2} ")
    page.click("#first")
    page.press("\ue012")  # the left arrow, at the first step
    assert page.texts("#position")[0].startswith("Step 0 ")


def shown(text):
    return float(text.replace("−", "-"))


def test_another_hypothesis_takes_the_place_of_the_translation(page, data):
    page.click("#last")
    second = data["steps"][-1]["finished"][1]
    page.click("#finished .hypothesis:nth-child(2) button")
    words = [data["nodes"][second]["piece"]]
    place = data["nodes"][second]["parent"]
    while place >= 0:
        words.insert(0, data["nodes"][place]["piece"])
        place = data["nodes"][place]["parent"]
    assert page.texts("#target .word span") == words
    assert page.texts("#chosen") == ["Another one"]
    focused = page.browser.switch_to.active_element
    assert focused.get_attribute("aria-pressed") == "true"
    page.click("#finished .hypothesis:nth-child(1) button")
    assert page.texts("#target .word span") == ["<s>", *"BAF", "</s>"]


def test_every_control_has_a_name(page):
    for control in page.all("button, input, canvas"):
        assert control.accessible_name.strip(), control.get_attribute("outerHTML")
    page.browser.execute_script("document.querySelector('#source .word').focus()")
    assert "f is looked at" in page.reading()


def test_hostile_text_is_shown_as_text(browser, data, tmp_path):
    hostile = "</script><script>document.title = 'broken'</script><b>&amp;"
    changed = {**data, "sentence": hostile, "source": [hostile, *data["source"][1:]]}
    file = tmp_path / "page.html"
    file.write_text(make_page(changed), encoding="utf-8")
    page = Page(browser, file)
    assert page.texts("#source .word span")[0] == hostile
    assert browser.title == f"Attention: {hostile}"
    assert page.all("#source b") == []
