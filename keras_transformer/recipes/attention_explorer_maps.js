// The heat maps: one a head, words that read down the side, words that are read along the top.
const LABEL = 68, NAMED = 11;  // pixels: room for a word, and the narrowest cell with a name

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function makeMap(head) {
  const canvas = element("canvas");
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `Weights of head ${head + 1}, layer ${state.layer + 1}: ${VIEWS[state.view]}`);
  canvas.addEventListener("mousemove", (event) => pointAt(canvas, head, event));
  canvas.addEventListener("mouseleave", () => look(null));
  canvas.addEventListener("click", () => state.word && keep(state.word));
  return canvas;
}

function sizesOf(canvas) {
  const rows = wordsOf(querySide()).length - firstQuery(), columns = keyCount();
  const width = canvas.parentElement.clientWidth - 16;
  const wide = Math.min(48, (width - LABEL) / columns), high = Math.max(13, Math.min(26, wide));
  return { rows, columns, width, wide, high, height: LABEL + rows * high + 2 };
}

function pointAt(canvas, head, event) {
  const { rows, columns, wide, high } = sizesOf(canvas);
  const row = Math.floor((event.offsetY - LABEL) / high), column = Math.floor((event.offsetX - LABEL) / wide);
  const inside = row >= 0 && row < rows && column >= 0 && column < columns;
  canvas.title = "";
  if (!inside) return state.word && look(null);
  const index = row + firstQuery(), weight = rowsOf(index)[head][column];
  const names = [wordsOf(querySide())[index], wordsOf(keySide())[column]].map(shown);
  if (weight !== undefined) canvas.title = `${names[0]} → ${names[1]}: ${percent(weight)}`;
  if (state.word?.side !== querySide() || state.word.index !== index) look({ side: querySide(), index });
}

function drawMap(canvas, head, here) {
  const sizes = sizesOf(canvas), { rows, columns, width, wide, high, height } = sizes;
  if (width <= 0) return;
  const scale = window.devicePixelRatio || 1, pen = canvas.getContext("2d"), gap = wide > 4 ? 1 : 0;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  canvas.style.height = `${height}px`;
  pen.scale(scale, scale);
  const weightColour = colour("--weight").split(" ").join(",");
  for (let row = 0; row < rows; row++) {
    rowsOf(row + firstQuery())[head].forEach((weight, column) => {
      pen.fillStyle = `rgba(${weightColour},${depth(weight)})`;
      pen.fillRect(LABEL + column * wide, LABEL + row * high, wide - gap, high - gap);
    });
  }
  pen.strokeStyle = colour("--line");
  pen.strokeRect(LABEL - 0.5, LABEL - 0.5, columns * wide, rows * high);
  drawNames(pen, sizes, head, here);
  if (!here) return;
  pen.strokeStyle = colour("--here");
  pen.lineWidth = 2;
  if (here.reads) pen.strokeRect(LABEL - 1, LABEL - 1 + (here.index - firstQuery()) * high, columns * wide + 1, high + 1);
  else pen.strokeRect(LABEL - 1 + here.index * wide, LABEL - 1, wide + 1, rows * high + 1);
}

// Where columns are too narrow for names, only the one that matters most has one.
function drawNames(pen, { rows, columns, wide, high }, head, here) {
  const draw = (word, size, isHere) => {
    pen.fillStyle = colour(isHere ? "--here" : "--ink");
    pen.font = `${isHere ? "600 " : ""}${Math.max(11, Math.min(13, size - 2))}px system-ui, sans-serif`;
    pen.fillText(fitting(pen, shown(word), LABEL - 8), 0, 0);
    pen.restore();
  };
  const queries = wordsOf(querySide()).slice(firstQuery());
  pen.textBaseline = "middle";
  for (let row = 0; row < rows; row++) {
    pen.save();
    pen.textAlign = "right";
    pen.translate(LABEL - 5, LABEL + (row + 0.5) * high);
    draw(queries[row], high, here?.reads && here.index - firstQuery() === row);
  }
  const row = here?.reads ? rowsOf(here.index)[head] : [], most = row.indexOf(Math.max(...row));
  for (let column = 0; column < columns; column++) {
    const isHere = here && !here.reads && here.index === column;
    if (wide < NAMED && !isHere && column !== most) continue;
    pen.save();
    pen.textAlign = "left";
    pen.translate(LABEL + (column + 0.5) * wide, LABEL - 5);
    pen.rotate(-Math.PI / 2);
    draw(wordsOf(keySide())[column], Math.max(wide, NAMED), isHere);
  }
}

function fitting(pen, word, width) {
  if (pen.measureText(word).width <= width) return word;
  let letters = [...word];
  while (letters.length > 1 && pen.measureText(`${letters.join("")}…`).width > width) letters.pop();
  return `${letters.join("")}…`;
}
