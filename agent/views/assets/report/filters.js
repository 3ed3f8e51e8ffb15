// What the reader looks for: a text, and one value for each property that differs among the pairs. Bins are offered in
// their order, other values by how many have them.

const NONE = "–";
const bin = (number) => (number === null ? NONE : REPORT.bins[number]);
const FACETS = {
  label: ["Label", (row) => row.label],
  majority: ["Label by majority", (row) => (REPORT.rounds > 1 ? row.majority : NONE)],
  decided_by: ["Decided by", (row) => row.decided_by ?? NONE],
  screened: ["Screened", (row) => row.screened ?? NONE],
  status: ["Test", (row) => row.status ?? NONE],
  cause: ["Cause", (row) => row.cause ?? NONE],
  error: ["Error", (row) => row.error ?? NONE],
  against: ["Label and test", (row) => (row.against ? "against each other" : NONE)],
  gold: ["People's label", (row) => (row.gold === null ? NONE : String(row.gold) === row.label ? "the same" : "another")],
  stand_ins: ["Stand-ins", (row) => (row.stand_ins ? "some" : "none")],
  repairs: ["Repairs", (row) => (row.repairs ? "some" : "none")],
  confidence: ["Confidence", (row) => bin(row.confidence_bin), true],
  strength: ["Strength", (row) => bin(row.strength_bin), true],
  round: ["Round", (row) => String(row.round)],
  evidence: ["Evidence", (row) => (row.evidence && row.evidence[1] < (REPORT.pieces[row.evidence[0]] ?? 0) ? "here" : "not here")],
};

const chosen = new Map();
let terms = [];
let haystacks = null;
let building = null;

// Adds a choice for each property of which there are at least two values.
function offerFilters(all, changed) {
  for (const [name, [title, valueOf, inOrder]] of Object.entries(FACETS)) {
    const counts = new Map();
    for (const row of all) counts.set(valueOf(row), (counts.get(valueOf(row)) ?? 0) + 1);
    if (counts.size < 2) continue;
    const byName = (one, other) => (one[0] < other[0] ? -1 : 1);
    const values = [...counts].sort((one, other) => (inOrder ? byName(other, one) : other[1] - one[1] || byName(one, other)));
    const select = make("select", { name, change: () => {
      if (select.value === "") chosen.delete(name);
      else chosen.set(name, values[Number(select.value)][0]);
      changed();
    } }, make("option", { value: "" }, "any"),
    values.map(([value, count], number) => make("option", { value: number }, `${value} (${count.toLocaleString("en")})`)));
    byId("filters").append(make("label", {}, title, " ", select));
  }
  const reset = make("button", { type: "button", click: () => {
    byId("filters").reset();
    chosen.clear();
    terms = [];
    changed();
  } }, "Show all");
  byId("filters").append(reset);
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  let waiting = 0;
  byId("search").addEventListener("input", (event) => {
    clearTimeout(waiting);
    waiting = setTimeout(async () => {
      const text = event.target.value;
      if (text.trim()) await buildHaystacks(all);
      if (text !== byId("search").value) return;
      terms = termsOf(text);
      changed();
    }, 120);
  });
}

// The words of a search; what stands between quotation marks is one.
function termsOf(text) {
  return (text.toLowerCase().match(/"[^"]+"|\S+/g) ?? []).map((term) => (/^".+"$/.test(term) ? term.slice(1, -1) : term));
}

// The text of each pair in which is searched, made at the first search.
function buildHaystacks(all) {
  building ??= (async () => {
    const made = new Array(all.length);
    for (const row of all) {
      const story = await storyOf(row);
      const texts = story ? [story.query, story.code, story.reason, story.error?.message] : [row.query];
      made[row.place] = [row.id, row.error, ...texts].filter(Boolean).join("\n").toLowerCase();
    }
    haystacks = made;
  })();
  return building;
}

function fits(row) {
  for (const [name, value] of chosen) if (FACETS[name][1](row) !== value) return false;
  return terms.every((term) => haystacks[row.place].includes(term));
}
