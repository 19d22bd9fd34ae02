"use strict";
const byId = (id) => document.getElementById(id);
const data = JSON.parse(byId("data").textContent);
const { nodes, steps } = data;
// Weights come as text, a letter a weight.
const unpacked = (part) => (typeof part === "string" ? Array.from(part, thousandths) : part.map(unpacked));
const thousandths = (letter) => letter.charCodeAt(0) - (letter <= "~" ? 93 : 127);
for (const { weights = {} } of nodes) for (const kind in weights) weights[kind] = unpacked(weights[kind]);
if (data.encoder) data.encoder = unpacked(data.encoder);
const VIEWS = {
  encoder: "Source reads source",
  cross: "Translation reads source",
  decoder: "Translation reads itself",
};
const views = data.encoder ? ["encoder", "cross", "decoder"] : ["cross"];
const lastStep = steps.length - 1;
// `word` and `kept` are {side, index}: the word pointed at, and the one clicked.
const state = { view: "cross", layer: 0, head: null, form: "maps", step: 0, chosen: 0, word: null, kept: null };

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

// ---- what the data says

// A SentencePiece vocabulary marks what begins a word, WordPiece what goes on with one.
const marksBeginnings = [...data.source, ...nodes.map((node) => node.piece)].some((p) => /^▁./.test(p));
const isSpecial = (piece) => data.special.includes(piece);
const isJoined = (piece) => !isSpecial(piece) && (marksBeginnings ? !piece.startsWith("▁") : /^##./.test(piece));
const character = (_, hex) => String.fromCharCode(parseInt(hex, 16));
// A byte of ASCII is a letter; one beyond it is a part of one.
const shown = (piece) => piece.replace(/^▁(?=.)|^##(?=.)/, "").replace(/^<0x(2[1-9A-F]|[3-6].|7[0-9A-E])>$/, character);
const percent = (weight) => `${(weight / 10).toFixed(weight < 100 ? 1 : 0)}\u00a0%`;
const depth = (weight) => Math.sqrt(weight / 1000);  // small weights are to be seen too

function pathTo(place) {
  const path = [];
  for (; place >= 0; place = nodes[place].parent) path.unshift(place);
  return path;
}

// The best that became of a hypothesis: its best finished one, else its likeliest continuation.
function outcome(place) {
  const heirs = nodes.map((_, heir) => heir).filter((heir) => pathTo(heir).includes(place));
  const finished = heirs.filter((heir) => nodes[heir].score !== null);
  if (finished.length) return finished.reduce((a, b) => (nodes[b].score > nodes[a].score ? b : a));
  return heirs.reduce((a, b) => (nodes[b].length > nodes[a].length ? b : a));
}

function textOf(place) {
  if (nodes[place].text !== undefined) return nodes[place].text || "(nothing)";
  const words = pathTo(place).slice(1).map((p) => nodes[p].piece);
  return words.map((piece, n) => (n && !isJoined(piece) ? " " : "") + shown(piece)).join("") || "(nothing yet)";
}

const path = () => pathTo(state.chosen);
const sourceWords = () => data.source;
const targetWords = () => path().map((place) => nodes[place].piece);
const querySide = () => (state.view === "encoder" ? "source" : "target");
const keySide = () => (state.view === "decoder" ? "target" : "source");
const wordsOf = (side) => (side === "source" ? sourceWords() : targetWords());
// Nothing is written before the first word of a translation, its start.
const firstQuery = () => (querySide() === "target" ? 1 : 0);
const keyCount = () => (keySide() === "source" ? data.source.length : path().length - 1);

function layersOf() {
  return state.view === "encoder" ? data.encoder : nodes[0].weights[state.view];
}

// Where each head looks for a word: [head][key], in thousandths.
function rowsOf(query) {
  if (state.view === "encoder") return data.encoder[state.layer].map((head) => head[query]);
  return nodes[path()[query - 1]].weights[state.view][state.layer];
}

function meanOf(rows) {
  if (state.head !== null) return rows[state.head];
  return rows[0].map((_, key) => rows.reduce((sum, row) => sum + row[key], 0) / rows.length);
}

// The word looked at, and whether as one that reads or as one that is read.
function looked() {
  const fallback = { side: querySide(), index: querySide() === "target" ? state.step + 1 : 0 };
  for (const word of [state.word, state.kept, fallback]) {
    if (!word) continue;
    const index = Math.min(word.index, wordsOf(word.side).length - 1);
    if (word.side === querySide() && index >= firstQuery()) return { index, reads: true };
    if (word.side === keySide() && index < keyCount()) return { index, reads: false };
  }
  return null;
}

// By index, the weights of the other words for the word looked at; and their side.
function weightsFor({ index, reads }) {
  if (reads) return { side: keySide(), weights: meanOf(rowsOf(index)) };
  const count = wordsOf(querySide()).length, weights = [];
  for (let query = firstQuery(); query < count; query++) weights[query] = meanOf(rowsOf(query))[index] || 0;
  return { side: querySide(), weights };
}

// ---- the words

function drawWords() {
  const here = looked(), light = here && weightsFor(here);
  for (const side of ["source", "target"]) {
    wordsOf(side).forEach((piece, index) => {
      const button = byId(side).children[index], weight = light?.side === side ? light.weights[index] : undefined;
      const isHere = here && here.index === index && side === (here.reads ? querySide() : keySide());
      button.style.setProperty("--depth", depth(weight || 0));
      button.classList.toggle("deep", depth(weight || 0) > 0.6);
      button.classList.toggle("here", Boolean(isHere));
      button.classList.toggle("coming", side === "target" && index > state.step + 1);
      const takesPart = side === keySide() && index < keyCount() || side === querySide() && index >= firstQuery();
      button.classList.toggle("idle", !takesPart);
      button.setAttribute("aria-pressed", String(state.kept?.side === side && state.kept.index === index));
      button.lastChild.textContent = weight >= 10 ? Math.round(weight / 10) : "";
    });
  }
}

function makeWords(side) {
  byId(side).replaceChildren(...wordsOf(side).map((piece, index) => {
    const word = { side, index }, button = element("button", { className: "word" });
    const text = element("span", { textContent: shown(piece) });
    if (isSpecial(piece)) text.dir = "ltr";  // its letters do not say which way the row is read
    button.append(text, element("small"));
    button.classList.toggle("joined", index > 0 && isJoined(piece));
    button.classList.toggle("special", isSpecial(piece));
    button.setAttribute("aria-label", `${side === "source" ? "Source" : "Translation"}: ${shown(piece)}`);
    for (const event of ["mouseenter", "focus"]) button.addEventListener(event, () => look(word));
    for (const event of ["mouseleave", "blur"]) button.addEventListener(event, () => look(null));
    button.addEventListener("click", () => keep(word));
    return button;
  }));
}

function look(word) {
  state.word = word;
  drawAttention();
}

function keep(word) {
  const same = state.kept && word && state.kept.side === word.side && state.kept.index === word.index;
  state.kept = same ? null : word;
  drawAttention();
}

// ---- the heads

function drawReading() {
  const here = looked();
  if (!here) return byId("reading").replaceChildren("Point at a word.");
  const { side, weights } = weightsFor(here), names = wordsOf(side);
  const own = wordsOf(here.reads ? querySide() : keySide())[here.index];
  const best = Object.keys(weights).sort((a, b) => weights[b] - weights[a]).slice(0, 4);
  const heads = layersOf()[state.layer].length;
  const who = state.head !== null ? `head ${state.head + 1}` : heads > 1 ? `the mean of ${heads} heads` : "its head";
  const verb = { encoder: "Reading", cross: "Writing", decoder: "Writing" }[state.view];
  const list = best.flatMap((index, n) => [
    n ? ", " : " ", element("bdi", { textContent: shown(names[index]) }), ` ${percent(weights[index])}`,
  ]);
  byId("reading").replaceChildren(
    ...(here.reads ? [`${verb} `] : []), element("b", {}, element("bdi", { textContent: shown(own) })),
    here.reads ? `, layer ${state.layer + 1} looks (${who}) at` : ` is looked at in layer ${state.layer + 1} (${who}) by`,
    ...list,
  );
}

function makeHeads() {
  const count = layersOf()[state.layer].length;
  if (state.head >= count) state.head = null;
  byId("heads").replaceChildren(...Array.from({ length: count }, (_, head) => {
    const name = element("button", { textContent: `Head ${head + 1}` });
    name.setAttribute("aria-pressed", String(state.head === head));
    name.addEventListener("click", () => {
      state.head = state.head === head ? null : head;
      [...byId("heads").children].forEach((card, n) => {
        card.firstChild.setAttribute("aria-pressed", String(state.head === n));
      });
      drawAttention();
    });
    return element("div", { className: "head" }, name, state.form === "maps" ? makeMap(head) : element("div", { className: "bars" }));
  }));
}

function drawBars(box, head, here) {
  const words = wordsOf(here.reads ? keySide() : querySide());
  let weights = [];
  if (here.reads) weights = rowsOf(here.index)[head];
  else for (let q = firstQuery(); q < words.length; q++) weights[q] = rowsOf(q)[head][here.index] || 0;
  box.replaceChildren(...Object.keys(weights).flatMap((index) => [
    element("bdi", { textContent: shown(words[index]) }),
    element("i", { style: `width: ${weights[index] / 10}%` }),
    element("span", { textContent: percent(weights[index]) }),
  ]));
}

function drawHeads() {
  const here = looked();
  [...byId("heads").children].forEach((card, head) => {
    if (state.form === "maps") drawMap(card.lastChild, head, here);
    else if (here) drawBars(card.lastChild, head, here);
  });
}

function drawAttention() {
  drawWords();
  drawReading();
  drawHeads();
}
