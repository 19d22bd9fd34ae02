// The steps of the search, and the controls of the page.
function followingOf(place) {
  const { following, taken } = nodes[place];
  const next = steps[state.step + 1], onPath = new Set(path());
  return following.map(([piece, share], n) => {
    const heir = taken[n], rank = heir === null ? -1 : next.live.indexOf(heir);
    const ended = heir !== null && rank < 0;
    const fate = rank >= 0 ? ` → ${rank + 1}` : ended ? " ✓" : "";
    const made = element("span", {}, element("bdi", { textContent: nextName(piece) }), ` ${share ? percent(share) : "< 0.1\u00a0%"}${fate}`);
    made.style.setProperty("--share", `${share / 10}%`);
    made.classList.toggle("taken", heir !== null);
    made.classList.toggle("chosen", heir !== null && onPath.has(heir));
    made.title = rank >= 0 ? "goes on" : ended ? "ended and kept" : "dropped";
    return made;
  });
}

// "ball" may be a word or the end of one.
function nextName(piece) {
  const name = shown(piece);
  return isJoined(piece) && /^\p{L}/u.test(name) ? `+${name}` : name;
}

function hypothesisItem(place, rank, number, ...more) {
  const item = element("li", { className: "hypothesis" }), chosen = path().includes(place);
  item.classList.toggle("chosen", chosen);
  const button = element("button", {}, element("bdi", { textContent: textOf(place) }));
  button.setAttribute("aria-label", `Show ${textOf(place)}`);
  button.setAttribute("aria-pressed", String(chosen));
  button.dataset.place = place;
  button.addEventListener("click", () => {
    choose(outcome(place));
    document.querySelector(`[data-place="${place}"]`).focus();  // it has been drawn anew
  });
  const tags = more.filter((part) => part.className === "tag");
  const row = element("div", {}, element("span", { className: "rank", textContent: rank }), button, ...tags,
    element("span", { className: "number", textContent: number.toFixed(2).replace("-", "−") }));
  item.append(row, ...more.filter((part) => part.className !== "tag"));
  return item;
}

function drawSteps() {
  const now = steps[state.step], before = steps[state.step - 1];
  byId("step").value = state.step;
  byId("position").textContent = `Step ${state.step} of ${lastStep}`;
  for (const id of ["first", "back"]) byId(id).disabled = state.step === 0;
  for (const id of ["last", "forward"]) byId(id).disabled = state.step === lastStep;
  const over = state.step === lastStep;
  byId("situation").textContent = over
    ? "The search has stopped: no live hypothesis can still reach the score of the worst finished one kept, or none is left."
    : state.step === 0
      ? "Nothing is written yet."
      : `${counted(now.live.length, "live hypothesis", "live hypotheses")} of ${counted(state.step, "token")}, the likeliest first:`;
  byId("key").hidden = over;
  byId("live").replaceChildren(...now.live.map((place, n) => {
    const parts = [];
    if (nodes[place].following) {
      parts.push(element("div", { className: "following" }, ...followingOf(place)));
      if (nodes[place].taken.every((heir) => heir === null)) parts.push(tag("dropped"));
    }
    return hypothesisItem(place, String(n + 1), nodes[place].total, ...parts);
  }));
  const finished = now.finished.map((place, n) => {
    const isNew = !before?.finished.includes(place);
    return hypothesisItem(place, String(n + 1), nodes[place].score, ...(isNew ? [tag("new")] : []));
  });
  byId("finished").replaceChildren(...(finished.length ? finished : [element("li", { className: "note", textContent: "None yet." })]));
}

function counted(number, one, several = `${one}s`) {
  return `${number} ${number === 1 ? one : several}`;
}

function tag(text) {
  return element("span", { className: "tag", textContent: text });
}

function goTo(step) {
  state.step = Math.max(0, Math.min(lastStep, step));
  state.word = state.kept = null;
  drawSteps();
  drawAttention();
}

function choose(place) {
  state.chosen = place;
  const best = steps[lastStep].finished[0] === place;
  byId("chosen").textContent = best ? "Translation" : nodes[place].score === null ? "Unfinished" : "Another one";
  state.word = state.kept = null;
  makeWords("target");
  drawSteps();
  makeHeads();
  drawAttention();
}

function addChoice(name, key, options, labels) {
  const fieldset = element("fieldset", {}, element("legend", { textContent: name }));
  options.forEach((option, n) => {
    const input = element("input", { type: "radio", name: key, value: option, checked: state[key] === option });
    input.addEventListener("change", () => {
      state[key] = option;
      if (key === "view") state.word = state.kept = null;
      makeHeads();
      drawAttention();
    });
    fieldset.append(element("label", {}, input, labels[n]));
  });
  byId("choices").append(fieldset);
}

function start() {
  document.title = `Attention: ${data.sentence}`;
  byId("about").textContent = `Beam of ${data.beam_size}, length penalty ${data.length_penalty}, `
    + `${counted(layersOf().length, "layer")}, ${counted(layersOf()[0].length, "head")}.`;
  const layers = layersOf().map((_, layer) => layer);
  state.layer = layers.length - 1;
  addChoice("View", "view", views, views.map((view) => VIEWS[view]));
  addChoice("Layer", "layer", layers, layers.map((layer) => String(layer + 1)));
  addChoice("As", "form", ["maps", "bars"], ["maps", "bars"]);
  byId("legend").lastChild.append(...[0, 100, 250, 500, 1000].map((weight) => {
    const patch = element("span", { textContent: `${weight / 10} %`, className: "patch" });
    patch.style.background = `rgb(var(--weight) / ${depth(weight)})`;
    if (depth(weight) > 0.6) patch.style.color = "var(--on-weight)";
    return patch;
  }));
  byId("step").max = lastStep;
  byId("step").addEventListener("input", () => goTo(Number(byId("step").value)));
  const moves = { first: () => 0, back: () => state.step - 1, forward: () => state.step + 1, last: () => lastStep };
  for (const [id, move] of Object.entries(moves)) byId(id).addEventListener("click", () => goTo(move()));
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") keep(null);
    if (event.target.tagName === "INPUT" || event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === "ArrowRight") goTo(state.step + 1);
    if (event.key === "ArrowLeft") goTo(state.step - 1);
  });
  window.addEventListener("resize", drawAttention);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAttention);
  makeWords("source");
  choose(steps[lastStep].finished[0] ?? outcome(0));
}

start();
