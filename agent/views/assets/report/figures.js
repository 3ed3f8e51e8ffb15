// The page above the table: names, key figures, sections of figures.

function showFigures() {
  byId("name").append(shown(REPORT.name));
  byId("subtitle").append(shown(REPORT.subtitle));
  byId("notes").append(...REPORT.notes.map((note) => make("p", { class: "note" }, note)));
  byId("cards").append(...REPORT.cards.map(({ name, value, note }) =>
    make("div", {}, make("dt", {}, name), make("dd", {}, value), make("dd", { class: "quiet small" }, note))));
  const last = REPORT.sections.filter(({ id }) => id === "run");
  byId("figures").append(...REPORT.sections.filter(({ id }) => id !== "run").map(sectionOf));
  byId("pairs").after(...last.map(sectionOf));
  const titles = [...REPORT.sections.filter(({ id }) => id !== "run"), { id: "pairs", title: "Pairs" }, ...last];
  byId("contents").append(...titles.map(({ id, title }) => make("a", { href: `#${id}` }, title)));
}

function sectionOf({ id, title, blocks }) {
  return make("section", { id, "aria-labelledby": `${id}-title` },
    make("h2", { id: `${id}-title` }, title),
    make("div", { class: "blocks" }, blocks.map((each) => blockOf(each, id === "run"))));
}

// Tables are folded where a chart says the same, in a `quiet` section, and where the page is narrow; not large ones.
function blockOf({ title, text, chart, tables }, quiet) {
  const drawing = chart && chartOf(chart);
  const inside = tables.map(tableOf);
  const large = tables.some(({ columns }) => columns.length >= 7);
  return make("article", { class: chart && !large ? "block" : "block wide" },
    make("h3", {}, title),
    text && make("p", { class: "quiet" }, text),
    drawing,
    inside.length > 0 && make("details", { open: !quiet && (large || !drawing) && !NARROW },
      make("summary", {}, drawing ? "As a table" : "All of it"), inside));
}
