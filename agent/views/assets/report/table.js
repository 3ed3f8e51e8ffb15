// The table of pairs: a page of rows at a time, sorted, each row a button to open it.

const PAGE = NARROW ? 20 : 50;
const number = (value, digits = 2) => (value === null ? "–" : value.toFixed(digits));
const money = (value) => (value === null ? "unknown" : value === 0 ? "$0" : `$${value.toFixed(4)}`);
const nameOf = (row) => (row.id || "(no id)") + (REPORT.rounds > 1 ? ` · round ${row.round}` : "");
const FIELDS = [
  ["pair", "id", (row) => make("button", { type: "button", class: "open clamp" }, nameOf(row))],
  ["query", "query", (row) => make("span", { class: "clamp", dir: "auto" }, row.query)],
  ["label", "label", (row) => chip(row.label, row.label)],
  ["decided by", "decided_by", (row) => row.decided_by ?? "–"],
  ["test", "status", (row) => make("span", {}, row.status ?? "–", row.cause && make("span", { class: "quiet" }, ` ${row.cause}`))],
  ["confidence", "confidence", (row) => number(row.confidence), true],
  ["gold", "gold", (row) => (row.gold === null ? "–" : String(row.gold)), true],
  ["time", "seconds", (row) => `${number(row.seconds, 1)} s`, true],
  ["cost", "cost", (row) => money(row.cost), true],
];
const KINDS = { 1: "good", 0: "bad", error: "error" };
const chip = (text, label) => make("span", { class: `chip ${KINDS[label] ?? "muted"}` }, text);

let all = [];
let found = [];
let first = 0;
let order = null;
let fields = FIELDS;

async function showTable() {
  all = await rows();
  fields = FIELDS.filter(([, key]) => !["confidence", "gold"].includes(key) || all.some((row) => row[key] !== null));
  byId("table").tHead.rows[0].append(...fields.map(headOf));
  offerFilters(all, () => { first = 0; refresh(); });
  refresh();
}

function headOf([title, key, , numeric]) {
  const sort = () => {
    order = order?.key === key ? (order.down ? null : { key, down: true }) : { key, down: false };
    for (const head of byId("table").tHead.rows[0].cells) head.removeAttribute("aria-sort");
    if (order) head.setAttribute("aria-sort", order.down ? "descending" : "ascending");
    first = 0;
    refresh();
  };
  const head = make("th", { scope: "col", class: numeric && "number" }, make("button", { type: "button", click: sort }, title));
  return head;
}

function refresh() {
  found = all.filter(fits);
  if (order) {
    const { key, down } = order;
    const value = (row) => row[key] ?? "";
    const compared = (one, other) => (value(one) < value(other) ? -1 : value(one) > value(other) ? 1 : one.place - other.place);
    found.sort((one, other) => (down ? compared(other, one) : compared(one, other)));
  }
  const unit = REPORT.rounds > 1 ? `annotations, ${REPORT.rounds} rounds` : all.length === 1 ? "pair" : "pairs";
  byId("count").textContent = `${found.length.toLocaleString("en")} of ${all.length.toLocaleString("en")} ${unit}`;
  showPage();
}

function showPage() {
  const page = found.slice(first, first + PAGE);
  byId("table").tBodies[0].replaceChildren(...page.map(rowOf));
  byId("nothing").hidden = found.length > 0;
  const pages = Math.max(1, Math.ceil(found.length / PAGE));
  byId("page").textContent = `Page ${Math.floor(first / PAGE) + 1} of ${pages}`;
  byId("back").disabled = first === 0;
  byId("next").disabled = first + PAGE >= found.length;
  byId("pager").hidden = pages === 1;
}

function rowOf(row) {
  return make("tr", { "data-place": row.place, click: (event) => {
    if (!getSelection().toString() || event.target.closest("button")) openPair(row);
  } }, fields.map(([title, , content, numeric]) => make("td", { "data-name": title, class: numeric && "number" }, content(row))));
}

function turn(pages) {
  const target = first + pages * PAGE;
  if (target < 0 || target >= found.length) return false;
  first = target;
  showPage();
  return true;
}

byId("back").addEventListener("click", () => turn(-1));
byId("next").addEventListener("click", () => turn(1));
byId("table").tBodies[0].addEventListener("keydown", (event) => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!step) return;
  const buttons = [...byId("table").tBodies[0].querySelectorAll("button.open")];
  const next = buttons[buttons.indexOf(event.target) + step];
  if (next) next.focus();
  event.preventDefault();
});
