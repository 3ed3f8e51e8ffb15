// The page above the table (names, key figures, sections), and the dialog with an open pair.

function showFigures() {
  byId("name").append(shown(REPORT.name));
  byId("subtitle").append(shown(REPORT.subtitle));
  byId("notes").append(...REPORT.notes.map((note) => make("p", { class: "note" }, note)));
  byId("cards").append(...REPORT.cards.map(({ name, value, note }) =>
    make("div", {}, make("dt", {}, name), make("dd", {}, value), make("dd", { class: "quiet small" }, note))));
  const last = REPORT.sections.filter(({ id }) => id === "run");
  byId("figures").append(...REPORT.sections.filter(({ id }) => id !== "run").map(sectionOf));
  byId("pairs").after(...last.map(sectionOf));
  const pairs = REPORT.alone ? [] : [{ id: "pairs", title: "Pairs" }];
  const titles = [...REPORT.sections.filter(({ id }) => id !== "run"), ...pairs, ...last];
  for (const part of document.querySelectorAll("#pairs, #hint, .skip")) part.hidden = Boolean(REPORT.alone);
  byId("contents").append(...titles.map(({ id, title }) => make("a", { href: `#${id}` }, title)));
}

function sectionOf({ id, title, blocks }) {
  return make("section", { id, "aria-labelledby": `${id}-title` },
    make("h2", { id: `${id}-title` }, title),
    make("div", { class: "blocks" }, blocks.map((block) => blockOf(block, id === "run"))));
}

// Tables are folded if a chart shows the same values (except large tables), in a `quiet` section, and on a narrow page.
function blockOf({ title, text, chart, tables }, quiet) {
  const drawing = chart && chartOf(chart);
  const inside = tables.map(tableOf);
  const large = tables.some(({ columns }) => columns.length >= 7);
  return make("article", { class: chart && !large ? "block" : "block wide" },
    make("h3", {}, title),
    text && make("p", { class: "quiet" }, text),
    drawing,
    inside.length > 0 && make("details", { open: !quiet && (large || !drawing) && !NARROW },
      make("summary", {}, drawing ? "Show as a table" : "Show all"), inside));
}

// A table whose rows become stacked cells on a narrow page.
function tableOf({ columns, numeric, rows }) {
  const right = new Set(numeric);
  const cell = (value, column) => make("td", { "data-name": columns[column], class: right.has(column) && "number" }, value);
  return make("table", { class: "stack" },
    make("thead", {}, make("tr", {}, columns.map((name, column) => make("th", { scope: "col", class: right.has(column) && "number" }, name)))),
    make("tbody", {}, rows.map((row) => make("tr", {}, row.map(cell)))));
}

let opened = null;

// `follows`: replace the current history entry.
async function openPair(row, follows = byId("pair").open) {
  opened = row;
  remember("pair", follows);
  const [story, evidence, shared] = await Promise.all([storyOf(row), evidenceOf(row), piece("shared", 0)]);
  if (opened !== row) return;
  byId("pair-title").replaceChildren(shown(nameOf(row)));
  const steps = story ?? [{ kind: "query", title: "query", parts: [{ kind: "prose", text: row.query }] }];
  byId("story").replaceChildren(...[
    chips(row),
    stepsOf(steps),
    evidence && make("h3", { class: "part" }, "Evidence for the label"),
    evidence && stepsOf(evidence, shared ?? []),
    evidence === null && make("p", { class: "note" }, "The run has no evidence for this label, or the report excludes it."),
    evidence === undefined && make("p", { class: "note" }, "The evidence for this label is omitted to limit the file size. Run agent show to print it."),
  ].filter(Boolean));
  const place = matches.indexOf(row);
  byId("pair-back").disabled = place <= 0;
  byId("pair-next").disabled = place < 0 || place + 1 >= matches.length;
  if (!byId("pair").open) byId("pair").showModal();
  byId("pair").scrollTop = 0;
  byId("pair-title").focus();
}

function chips(row) {
  const facts = [
    chip(row.label === "1" ? "label 1, match" : row.label === "0" ? "label 0, no match" : row.label, row.label),
    REPORT.rounds > 1 && chip(`majority of rounds: ${row.majority}`, row.majority),
    row.gold !== null && chip(`gold: ${row.gold}`, String(row.gold)),
    row.status && chip(row.status),
    row.against ? chip("contradicts its test", "error") : null,
    chip(`${number(row.seconds, 1)} s`),
    chip(`${row.calls} calls, ${row.tokens.toLocaleString("en")} tokens, ${money(row.cost)}`),
  ];
  return make("p", { class: "chips" }, facts);
}

function step(by) {
  const next = matches[matches.indexOf(opened) + by];
  if (!opened || !next) return;
  while (matches.indexOf(next) < first && turn(-1));
  while (matches.indexOf(next) >= first + PAGE && turn(1));
  openPair(next);
}

byId("pair-back").addEventListener("click", () => step(-1));
byId("pair-next").addEventListener("click", () => step(1));
byId("pair-close").addEventListener("click", () => byId("pair").close());
byId("pair").addEventListener("click", (event) => { if (event.target === byId("pair")) byId("pair").close(); });
byId("pair").addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey) return;
  if (event.key === "ArrowLeft") step(-1);
  if (event.key === "ArrowRight") step(1);
});
byId("pair").addEventListener("close", () => {
  const row = opened;
  opened = null;
  byId("table").querySelector(`tr[data-place="${row?.place}"] button.open`)?.focus();
  leaving = row !== null && history.state?.by === "pair";
  if (leaving) history.back();
  else if (row) remember("", true);
});

function closePair() {
  const row = opened;
  opened = null;
  byId("pair").close();
  byId("table").querySelector(`tr[data-place="${row.place}"] button.open`)?.focus();
}

// Show figures first, then the table. Charts are drawn once Plotly has loaded.
showFigures();
showTheme();
showTable().then(() => { document.documentElement.dataset.ready = "yes"; });
