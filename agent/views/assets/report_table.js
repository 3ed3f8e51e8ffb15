// The table of pairs, with sorting, pages, a search field, and a filter for each property that differs among the pairs.

const PAGE = NARROW ? 20 : 50;
// If at most this number of rows match, all of them are printed. Otherwise, only the current page is printed.
const PRINTED = 1000;
const formatNumber = (value, digits = 2) => (value === null ? "–" : value.toFixed(digits));
const formatCost = (value) => (value === null ? "unknown" : value === 0 ? "$0" : `$${value.toFixed(4)}`);
const formatName = (row) => (row.id || "(no id)") + (REPORT.rounds > 1 ? ` · round ${row.round}` : "");
const FIELDS = [
  ["pair", "id", (row) => make("button", { type: "button", class: "open clamp" }, formatName(row))],
  ["query", "query", (row) => make("span", { class: "clamp", dir: "auto" }, row.query)],
  ["label", "label", (row) => chip(row.label, row.label)],
  ["decided by", "decided_by", (row) => row.decided_by ?? "–"],
  ["test", "status", (row) => make("span", {}, row.status ?? "–", row.cause && make("span", { class: "quiet" }, ` ${row.cause}`))],
  ["gold", "gold", (row) => (row.gold === null ? "–" : String(row.gold)), true],
  ["time", "seconds", (row) => `${formatNumber(row.seconds, 1)} s`, true],
  ["cost", "cost", (row) => formatCost(row.cost), true],
];
const KINDS = { 1: "good", 0: "bad", error: "error" };
const chip = (text, label) => make("span", { class: `chip ${KINDS[label] ?? "muted"}` }, text);

let all = [];
let matches = [];
let first = 0;
let order = null;
let fields = FIELDS;

async function showTable() {
  all = await loadRows();
  fields = FIELDS.filter(([, key]) => key !== "gold" || all.some((row) => row[key] !== null));
  byId("table").tHead.rows[0].append(...fields.map(buildHeading));
  addFilters(all);
  await restoreView();
}

function buildHeading([title, key, , numeric]) {
  const sort = () => {
    order = order?.key === key ? (order.down ? null : { key, down: true }) : { key, down: false };
    first = 0;
    refresh("order");
  };
  return make("th", { scope: "col", "data-key": key, class: numeric && "number" }, make("button", { type: "button", click: sort }, title));
}

// Apply the search, filters and order, and store them in the address. `by` is the control that changed.
function refresh(by) {
  updateMatches();
  showPage();
  remember(by);
}

function updateMatches() {
  matches = all.filter(isMatch);
  if (order) {
    const { key, down } = order;
    const value = (row) => row[key] ?? "";
    const compare = (one, other) => (value(one) < value(other) ? -1 : value(one) > value(other) ? 1 : one.position - other.position);
    matches.sort((one, other) => (down ? compare(other, one) : compare(one, other)));
  }
  const unit = REPORT.rounds > 1 ? `annotations, ${REPORT.rounds} rounds` : all.length === 1 ? "pair" : "pairs";
  byId("count").textContent = `${matches.length.toLocaleString("en")} of ${all.length.toLocaleString("en")} ${unit}`;
  for (const head of byId("table").tHead.rows[0].cells) {
    if (head.dataset.key === order?.key) head.setAttribute("aria-sort", order.down ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  }
  showActiveFilters();
}

function showPage() {
  const onPaper = document.documentElement.dataset.print && matches.length <= PRINTED;
  const page = onPaper ? matches : matches.slice(first, first + PAGE);
  byId("table").tBodies[0].replaceChildren(...page.map(buildRow));
  byId("nothing").hidden = matches.length > 0;
  const pages = Math.max(1, Math.ceil(matches.length / PAGE));
  byId("page").textContent = `Page ${Math.floor(first / PAGE) + 1} of ${pages}`;
  byId("back").disabled = first === 0;
  byId("next").disabled = first + PAGE >= matches.length;
  byId("pager").hidden = page.length === matches.length;
}

function buildRow(row) {
  return make("tr", { "data-position": row.position, click: (event) => {
    if (!getSelection().toString() || event.target.closest("button")) openPair(row);
  } }, fields.map(([title, , content, numeric]) => make("td", { "data-name": title, class: numeric && "number" }, content(row))));
}

function turnPages(pages) {
  const target = first + pages * PAGE;
  if (target < 0 || target >= matches.length) return false;
  first = target;
  showPage();
  return true;
}

for (const [button, by] of [["back", -1], ["next", 1]]) {
  byId(button).addEventListener("click", () => turnPages(by) && remember("page"));
}
byId("table").tBodies[0].addEventListener("keydown", (event) => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!step) return;
  const buttons = [...byId("table").tBodies[0].querySelectorAll("button.open")];
  const next = buttons[buttons.indexOf(event.target) + step];
  if (next) next.focus();
  event.preventDefault();
});

// Filters list marks in descending order. Other values are sorted by their number of pairs.
const NONE = "–";
const FACETS = {
  label: ["Label", (row) => row.label],
  majority: ["Label by majority", (row) => (REPORT.rounds > 1 ? row.majority : NONE)],
  decided_by: ["Decided by", (row) => row.decided_by ?? NONE],
  screened: ["Screened", (row) => row.screened ?? NONE],
  status: ["Test", (row) => row.status ?? NONE],
  cause: ["Cause", (row) => row.cause ?? NONE],
  error: ["Error", (row) => row.error ?? NONE],
  against: ["Label and test", (row) => (row.against ? "contradict" : NONE)],
  gold: ["Gold", (row) => (row.gold === null ? NONE : String(row.gold) === row.label ? "equal" : "different")],
  stand_ins: ["Stand-ins", (row) => (row.stand_ins ? "some" : "none")],
  repairs: ["Repairs", (row) => (row.repairs ? "some" : "none")],
  round: ["Round", (row) => String(row.round)],
  standing: ["Represents its pair", (row) => (row.standing ? "yes" : "no")],
  marks: ["Path", (row) => row.marks, true],
  evidence: ["Evidence", (row) => (row.evidence && row.evidence[1] < (REPORT.pieces[row.evidence[0]] ?? 0) ? "included" : "not included")],
};

const filters = new Map();
let terms = [];
let haystacks = null;
let building = null;
let searching = 0;

const getValues = (name, row) => [FACETS[name][1](row)].flat().map(escapeHidden);

// Add a filter for each property with at least two values.
function addFilters(all) {
  for (const [name, [title, , inOrder]] of Object.entries(FACETS)) {
    const counts = new Map();
    for (const row of all) for (const value of getValues(name, row)) counts.set(value, (counts.get(value) ?? 0) + 1);
    if (counts.size < 2) continue;
    const byName = (one, other) => (one[0] < other[0] ? -1 : 1);
    const values = [...counts].sort((one, other) => (inOrder ? byName(other, one) : other[1] - one[1] || byName(one, other)));
    const choose = (event) => {
      if (event.target.value === "") filters.delete(name);
      else filters.set(name, event.target.value);
      first = 0;
      refresh("filter");
    };
    byId("filters").append(make("label", {}, title, " ", make("select", { name, change: choose }, make("option", { value: "" }, "any"),
      values.map(([value, count]) => make("option", { value }, `${value} (${count.toLocaleString("en")})`)))));
  }
  byId("filters").append(make("button", { type: "button", click: () => listPairs({}) }, "Show all"));
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  let waiting = 0;
  byId("search").addEventListener("input", (event) => {
    clearTimeout(waiting);
    waiting = setTimeout(async () => {
      if (!await searchFor(event.target.value)) return;
      first = 0;
      refresh("search");
    }, 120);
  });
}

// Set the search terms. Return false if a later search has started in the meantime.
async function searchFor(text) {
  const id = searching += 1;
  if (text.trim()) await buildHaystacks(all);
  if (id !== searching) return false;
  terms = parseTerms(text);
  return true;
}

// Split a search into terms. A quoted phrase is one term.
function parseTerms(text) {
  return (text.toLowerCase().match(/"[^"]+"|\S+/g) ?? []).map((term) => (/^".+"$/.test(term) ? term.slice(1, -1) : term));
}

// Collect the searchable text of every pair. This happens only once, during the first search.
function buildHaystacks(all) {
  building ??= (async () => {
    const texts = new Array(all.length);
    for (const row of all) {
      const story = await loadStory(row);
      const searched = (story ?? []).filter(({ kind }) => ["query", "code", "label"].includes(kind));
      const parts = story ? searched.flatMap((step) => (step.parts ?? []).map((part) => part.text)) : [row.query];
      texts[row.position] = [row.id, row.error, ...parts].filter(Boolean).join("\n").toLowerCase();
    }
    haystacks = texts;
  })();
  return building;
}

function isMatch(row) {
  for (const [name, value] of filters) if (!getValues(name, row).includes(value)) return false;
  return terms.every((term) => haystacks[row.position].includes(term));
}
