// Shows the part of the page above the table (names, key figures, sections) and the dialog for an open pair.

// Sections that follow the table.
const AFTER_PAIRS = ["dataset", "run"];

function showFigures() {
  byId("name").append(textNodes(REPORT.name));
  byId("subtitle").append(textNodes(REPORT.subtitle));
  byId("notes").append(...REPORT.notes.map((note) => make("p", { class: "note" }, note)));
  byId("cards").append(...REPORT.cards.map(({ name, value, note }) =>
    make("div", {}, make("dt", {}, name), make("dd", {}, value), make("dd", { class: "quiet small" }, note))));
  const last = REPORT.sections.filter(({ id }) => AFTER_PAIRS.includes(id));
  const others = REPORT.sections.filter(({ id }) => !AFTER_PAIRS.includes(id));
  byId("figures").append(...others.map(buildSection));
  byId("pairs").after(...last.map(buildSection));
  const pairs = REPORT.alone ? [] : [{ id: "pairs", title: "Pairs" }];
  const titles = [...others, ...pairs, ...last];
  for (const part of document.querySelectorAll("#pairs, #hint, .skip")) part.hidden = Boolean(REPORT.alone);
  byId("contents").append(...titles.map(({ id, title }) => make("a", { href: `#${id}` }, title)));
}

function buildSection({ id, title, blocks }) {
  return make("section", { id, "aria-labelledby": `${id}-title` },
    make("h2", { id: `${id}-title` }, title),
    make("div", { class: "blocks" }, blocks.map((block) => buildFigure(block, id === "run"))));
}

// Tables are collapsed in `quiet` sections and on narrow pages. Small tables are also collapsed beside a chart.
function buildFigure({ title, text, chart, tables }, quiet) {
  const drawing = chart && buildChart(chart);
  const inside = tables.map(buildTable);
  const large = tables.some(({ columns }) => columns.length >= 7);
  return make("article", { class: chart && !large ? "block" : "block wide" },
    make("h3", {}, title),
    text && make("p", { class: "quiet" }, text),
    drawing,
    inside.length > 0 && make("details", { open: !quiet && (large || !drawing) && !NARROW },
      make("summary", {}, drawing ? "Show as a table" : "Show all"), inside));
}

// Build a table. On a narrow page, the cells of each row are stacked.
function buildTable({ columns, numeric, rows }) {
  const right = new Set(numeric);
  const cell = (value, column) => make("td", { "data-name": columns[column], class: right.has(column) && "number" }, value);
  return make("table", { class: "stack" },
    make("thead", {}, make("tr", {}, columns.map((name, column) => make("th", { scope: "col", class: right.has(column) && "number" }, name)))),
    make("tbody", {}, rows.map((row) => make("tr", {}, row.map(cell)))));
}

let openRow = null;

// Open the dialog for a pair. If `follows` is set, replace the current history entry.
async function openPair(row, follows = byId("pair").open) {
  openRow = row;
  remember("pair", follows);
  const [story, evidence, shared] = await Promise.all([loadStory(row), loadEvidence(row), loadPiece("shared", 0)]);
  if (openRow !== row) return;
  byId("pair-title").replaceChildren(textNodes(formatName(row)));
  const steps = story ?? [{ kind: "query", title: "query", parts: [{ kind: "prose", text: row.query }] }];
  byId("story").replaceChildren(...[
    buildChips(row),
    buildSteps(steps),
    evidence && make("h3", { class: "part" }, "Evidence for the label"),
    evidence && buildSteps(evidence, shared ?? []),
    evidence === null && make("p", { class: "note" }, "The run has no evidence for this label, or the report excludes it."),
    evidence === undefined && make("p", { class: "note" }, "The evidence for this label is omitted to limit the file size. Run `agent show` to print it."),
  ].filter(Boolean));
  const position = matches.indexOf(row);
  byId("pair-back").disabled = position <= 0;
  byId("pair-next").disabled = position < 0 || position + 1 >= matches.length;
  if (!byId("pair").open) byId("pair").showModal();
  byId("pair").scrollTop = 0;
  byId("pair-title").focus();
}

function buildChips(row) {
  const facts = [
    chip(row.label === "1" ? "label 1, match" : row.label === "0" ? "label 0, no match" : row.label, row.label),
    REPORT.rounds > 1 && chip(`majority of rounds: ${row.majority}`, row.majority),
    row.gold !== null && chip(`gold: ${row.gold}`, String(row.gold)),
    row.status && chip(row.status),
    row.against ? chip("contradicts its test", "error") : null,
    chip(`${formatNumber(row.seconds, 1)} s`),
    chip(`${row.calls} ${row.calls === 1 ? "call" : "calls"}, ${row.tokens.toLocaleString("en")} tokens, ${formatCost(row.cost)}`),
  ];
  return make("p", { class: "chips" }, facts);
}

function openNeighbour(by) {
  const next = matches[matches.indexOf(openRow) + by];
  if (!openRow || !next) return;
  while (matches.indexOf(next) < first && turnPages(-1));
  while (matches.indexOf(next) >= first + PAGE && turnPages(1));
  openPair(next);
}

byId("pair-back").addEventListener("click", () => openNeighbour(-1));
byId("pair-next").addEventListener("click", () => openNeighbour(1));
byId("pair-close").addEventListener("click", () => byId("pair").close());
byId("pair").addEventListener("click", (event) => { if (event.target === byId("pair")) byId("pair").close(); });
byId("pair").addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey) return;
  if (event.key === "ArrowLeft") openNeighbour(-1);
  if (event.key === "ArrowRight") openNeighbour(1);
});
byId("pair").addEventListener("close", () => {
  const row = openRow;
  openRow = null;
  byId("table").querySelector(`tr[data-position="${row?.position}"] button.open`)?.focus();
  leaving = row !== null && history.state?.by === "pair";
  if (leaving) history.back();
  else if (row) remember("", true);
});

function closePair() {
  const row = openRow;
  openRow = null;
  byId("pair").close();
  byId("table").querySelector(`tr[data-position="${row.position}"] button.open`)?.focus();
}

// Show figures first, then the table. Charts are drawn once Plotly has loaded.
showFigures();
showTheme();
showTable().then(() => { document.documentElement.dataset.ready = "yes"; });
