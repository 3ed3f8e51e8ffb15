// Stores the view in the address: search, filters, order, page and open pair. Links to a view rely on this address, and
// so do the browser's Back and Forward buttons.

// A change of one of these kinds replaces the history entry of a preceding change of the same kind.
const FOLLOWS = new Set(["search", "order", "page"]);
let leaving = false; // history.back() was called after closing a pair

function buildAddress() {
  const view = new URLSearchParams();
  if (byId("search").value.trim()) view.set("search", byId("search").value.trim());
  for (const [name, value] of filters) view.set(name, value);
  if (order) view.set("sort", (order.down ? "-" : "") + order.key);
  if (first > 0) view.set("from", first + 1);
  if (openRow) view.set("pair", escapeHidden(openRow.id));
  if (openRow && REPORT.rounds > 1) view.set("pair_round", openRow.round);
  return `#${view}`;
}

function remember(by, follows = FOLLOWS.has(by) && history.state?.by === by) {
  if (buildAddress() === (location.hash || "#")) return;
  try {
    history[follows ? "replaceState" : "pushState"](follows ? history.state : { by }, "", buildAddress());
  } catch { /* the page has no address, as in a preview */ }
}

// Show the view that the address describes.
async function restoreView() {
  const view = new URLSearchParams(location.hash.includes("=") ? location.hash.slice(1) : "");
  filters.clear();
  for (const name of Object.keys(FACETS)) if (view.has(name)) filters.set(name, view.get(name));
  byId("search").value = view.get("search") ?? "";
  const sort = view.get("sort") ?? "";
  const key = sort.replace(/^-/, "");
  order = fields.some((field) => field[1] === key) ? { key, down: sort.startsWith("-") } : null;
  if (!await searchFor(byId("search").value)) return;
  updateMatches();
  const pair = all.find((row) => escapeHidden(row.id) === view.get("pair") && row.round === Number(view.get("pair_round") ?? 0));
  const position = pair ? matches.indexOf(pair) : (Number(view.get("from")) || 1) - 1;
  first = Math.max(0, Math.floor(Math.min(position, matches.length - 1) / PAGE) * PAGE);
  showPage();
  if (pair) openPair(pair, true);
  else if (openRow) closePair();
}

addEventListener("popstate", ({ state }) => {
  const elsewhere = !state && location.hash && !location.hash.includes("="); // a link to a section, which keeps the view
  if (!leaving && !elsewhere) restoreView();
  else if (leaving || buildAddress() !== "#") remember("", true);
  leaving = false;
});

// List the pairs that a bar counts. The bar's filter replaces the current search and filters.
function listPairs(filter) {
  byId("filters").reset();
  terms = [];
  filters.clear();
  for (const [name, value] of Object.entries(filter)) filters.set(name, escapeHidden(value));
  first = 0;
  refresh("bar");
  byId("pairs").scrollIntoView();
  byId("count").focus({ preventScroll: true });
}

// Show the active search and filters as buttons that remove them.
function showActiveFilters() {
  const removeFilter = (name) => () => {
    if (name === "search") byId("search").value = "";
    if (name === "search") terms = [];
    filters.delete(name);
    first = 0;
    refresh("filter");
    byId("count").focus({ preventScroll: true });
  };
  const parts = [...filters].map(([name, value]) => [name, FACETS[name][0], value]);
  if (terms.length) parts.unshift(["search", "Search", byId("search").value.trim()]);
  byId("chosen").replaceChildren(...parts.map(([name, title, value]) =>
    make("button", { type: "button", class: "chip", "aria-label": `Remove: ${title}: ${value}`, click: removeFilter(name) }, `${title}: ${value}`)));
  byId("chosen").hidden = parts.length === 0;
  for (const select of byId("filters").querySelectorAll("select")) select.value = filters.get(select.name) ?? "";
}
