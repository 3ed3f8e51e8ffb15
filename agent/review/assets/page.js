// Texts of pairs, models and people go into the page by textContent alone (`put`): they stay text.

const $ = (id) => document.getElementById(id);
const NAMES = { 1: "match", 0: "no match", "?": "cannot decide" };
// What cannot be seen, or reorders what can, is shown as an escape; as the terminal shows it.
const ODD = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Zl}\p{Zp}]/u;

let session = null;
let number = 0;
let shown = null; // the pair as the server told it
let label = null; // "1", "0", "?" or null
let busy = false;
const committed = []; // numbers, in the order of this page's commits

function put(node, text) {
  node.textContent = "";
  let plain = "";
  for (const character of String(text ?? "").replaceAll("\r\n", "\n")) {
    if (character === "\n" || character === "\t" || !ODD.test(character)) {
      plain += character;
      continue;
    }
    const escape = document.createElement("span");
    escape.className = "odd";
    const code = character.codePointAt(0).toString(16);
    escape.textContent = code.length > 4 ? `\\u{${code}}` : `\\u${code.padStart(4, "0")}`;
    node.append(plain, escape);
    plain = "";
  }
  node.append(plain);
  return node;
}

function make(tag, text, name) {
  const node = put(document.createElement(tag), text);
  if (name) node.className = name;
  return node;
}

async function ask(path, body) {
  const options = body === undefined ? {} : {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
  };
  let answer;
  try {
    answer = await fetch(path, { ...options, credentials: "same-origin", cache: "no-store" });
  } catch {
    throw new Error("The server does not answer. Was `agent review` ended? What was said to be saved is safe.");
  }
  if (answer.status === 403) throw new Error(await answer.text());
  const told = await answer.json().catch(() => ({ error: `The server failed (${answer.status}); its terminal says why.` }));
  if (!answer.ok) throw new Error(told.error);
  return told;
}

// Drafts outlive the tab, as long as the server runs.
const draftKey = (at) => `review:${session.id}:${at}`;

function forgetOldDrafts() {
  try {
    for (const each of Object.keys(localStorage)) {
      if (each.startsWith("review:") && !each.startsWith(`review:${session.id}:`)) localStorage.removeItem(each);
    }
  } catch { /* storage is switched off */ }
}

function keepDraft() {
  const mine = own();
  const unchanged = label === mine.label && $("reason").value === mine.reason;
  try {
    if (unchanged) localStorage.removeItem(draftKey(number));
    else localStorage.setItem(draftKey(number), JSON.stringify({ label, reason: $("reason").value }));
  } catch { /* storage is full or switched off: the text is still on the page */ }
}

function draft() {
  try {
    const kept = JSON.parse(localStorage.getItem(draftKey(number)));
    if (kept && typeof kept.reason === "string") return { label: kept.label in NAMES ? kept.label : null, reason: kept.reason };
  } catch { /* none */ }
  return null;
}

const key = (value) => (value === null ? "?" : String(value));

function own() {
  return shown?.mine ? { label: key(shown.mine.label), reason: shown.mine.reason } : { label: null, reason: "" };
}

function dirty() {
  const mine = own();
  return label !== mine.label || $("reason").value.trim() !== mine.reason;
}

function choose(value) {
  label = value;
  refresh();
  keepDraft();
}

function trouble(message) {
  put($("trouble"), message);
  $("trouble").hidden = !message;
}

function refresh() {
  for (const button of document.querySelectorAll("[data-label]")) {
    button.setAttribute("aria-pressed", String(button.dataset.label === label));
  }
  const done = shown?.mine && !dirty();
  put($("commit-name"), done ? "Next" : shown?.mine ? "Commit anew" : "Commit");
  $("commit").setAttribute("aria-disabled", String(busy));
  const count = session.reviewed.filter(Boolean).length;
  const total = session.reviewed.length;
  put($("position"), `${number + 1} of ${total} · ${count} reviewed`);
  $("progress").max = total;
  $("progress").value = count;
  $("previous").disabled = number === 0;
  $("next").disabled = number === total - 1;
  document.title = `${number + 1}/${total} · Review`;
}

// One thing after the other: keys that are pressed meanwhile wait, so that they mean the pair that is then shown.
async function alone(work) {
  if (busy) return;
  busy = true;
  refresh();
  try {
    await work();
  } catch (error) {
    trouble(error.message);
  } finally {
    busy = false;
    refresh();
    while (held.length && !busy) handle(held.shift(), document.activeElement);
  }
}

function show(at, message = "") {
  if (at < 0 || at >= session.reviewed.length) return;
  alone(async () => {
    const told = await ask(`api/pairs/${at}`);
    number = at;
    shown = told;
    const text = draft() ?? own();
    label = text.label;
    $("reason").value = text.reason;
    $("reason").blur();
    put($("query"), told.pair.query);
    put($("code"), told.pair.code);
    put($("language"), `(${told.pair.language})`);
    put($("context"), told.pair.context);
    $("context-part").hidden = !told.pair.context;
    $("work").hidden = false;
    trouble("");
    put($("status"), message || (told.mine ? `You said: ${NAMES[key(told.mine.label)]}.` : ""));
    tellEvidence();
    window.scrollTo(0, 0);
  });
}

function commit() {
  if (busy || !shown) return;
  if (shown.mine && !dirty()) { goOn(); return; }
  if (label === null) { trouble("Choose a label first: 1, 0 or ?."); return; }
  alone(async () => {
    put($("status"), "Saving …");
    const said = { label: label === "?" ? null : Number(label), reason: $("reason").value };
    try {
      shown.mine = (await ask(`api/pairs/${number}`, said)).saved;
    } catch (error) {
      put($("status"), "");
      throw new Error(`Not saved. ${error.message} Your label and text stay on this page.`);
    }
    // What the mouse changed meanwhile stays, as a draft.
    if ($("reason").value === said.reason) $("reason").value = shown.mine.reason;
    $("reason").blur();
    session.reviewed[number] = true;
    committed.push(number);
    keepDraft();
    trouble("");
    put($("status"), `Saved: ${NAMES[key(shown.mine.label)]}. ${left() ? "" : ended()}`);
    shown = await ask(`api/pairs/${number}`);
    tellEvidence();
  });
}

const left = () => session.reviewed.filter((each) => !each).length;
const ended = () => `All ${session.reviewed.length} are reviewed: end with Ctrl-C in the terminal.`;

function goOn() {
  const total = session.reviewed.length;
  for (let step = 1; step < total; step += 1) {
    const at = (number + step) % total;
    if (!session.reviewed[at]) { show(at); return; }
  }
  put($("status"), ended());
}

function undo() {
  const last = committed.length ? committed[committed.length - 1] : session.reviewed.lastIndexOf(true, number - 1);
  if (last < 0) { put($("status"), "There is nothing to undo."); return; }
  committed.pop();
  show(last, "Change label or reason and commit anew: that takes the place of what you said.");
}

// ---- evidence

function part(title, ...nodes) {
  const section = document.createElement("section");
  section.append(make("h3", title), ...nodes.filter(Boolean));
  return section;
}

function folded(title, text, name) {
  const details = document.createElement("details");
  details.append(make("summary", title), block(text, name ?? title));
  return details;
}

function block(text, name) {
  const pre = make("pre", text);
  pre.tabIndex = 0;
  pre.setAttribute("aria-label", name);
  return pre;
}

function facts(rows) {
  const list = document.createElement("dl");
  for (const [name, value] of rows) {
    if (value === null || value === undefined || value === "" || value.length === 0) continue;
    list.append(make("dt", name), make("dd", Array.isArray(value) ? value.join(", ") : value));
  }
  return list;
}

const named = (value) => (value === null ? "undecided" : `${value} (${NAMES[value]})`);

function verdict(evidence) {
  const { annotation } = evidence;
  const error = annotation.error;
  const title = error ? "The run: no label, an error" : `The run: ${named(annotation.label)}`;
  const mine = shown.mine?.label;
  const agrees = !error && shown.mine && annotation.label !== null && mine !== null
    ? (mine === annotation.label ? ". You agree." : ". You disagree.") : "";
  return part(title + agrees,
    make("p", error ? `${error.type}: ${error.message}` : annotation.reason, "reason"),
    facts([
      ["decided by", annotation.decided_by],
      ["here because", evidence.why],
      ["screened", annotation.screen_verdict],
      ["reading", annotation.reading],
      ["abstained", annotation.abstained ? "yes" : ""],
      ["confidence", annotation.confidence?.toFixed(2)],
      ["test strength", annotation.strength?.toFixed(2)],
      ["votes", annotation.votes.map(named)],
      ["rounds", evidence.rounds.length > 1 ? evidence.rounds.map((each) => (each.failed ? "error" : named(each.label))) : []],
      ["stand-ins", annotation.stand_ins],
      ["installed", annotation.installed],
      ["pair", evidence.id],
      ["its fields", Object.keys(evidence.meta).length ? JSON.stringify(evidence.meta) : ""],
    ]));
}

function test(evidence) {
  const report = evidence.test;
  if (!report) {
    const guess = evidence.annotation.simulated;
    return part("Test", make("p", guess ? `Not run; predicted: ${guess.status}. ${guess.reason}` : "None was run."));
  }
  const cases = document.createElement("ul");
  cases.className = "cases";
  for (const each of report.cases) {
    const row = document.createElement("li");
    row.append(make("span", each.outcome.replace("_", " "), `outcome ${each.outcome}`), " ", make("code", each.name));
    if (each.message) row.append(make("p", each.message));
    cases.append(row);
  }
  const cause = report.cause ? ` (cause: ${report.cause})` : "";
  return part(`Test: ${report.status.replace("_", " ")}${cause}`, report.message && make("p", report.message), cases);
}

function program(evidence) {
  const runs = evidence.executions;
  const last = runs.at(-1);
  const nodes = runs.slice(0, -1).map((run, at) => folded(`Program of execution ${at + 1}`, run.source));
  if (last) nodes.push(block(last.source, "Program"));
  else if (evidence.template) nodes.push(block(evidence.template, "Program"));
  if (last?.stdout.trim()) nodes.push(folded("Standard output", last.stdout));
  if (last?.stderr.trim()) nodes.push(folded("Standard error", last.stderr));
  for (const each of evidence.commands) nodes.push(folded(`Command, ${each.outcome}`, `$ ${each.command}\n${each.output}`));
  return nodes.length ? part("Program", ...nodes) : null;
}

function others(evidence) {
  if (!evidence.others.length) return null;
  const list = document.createElement("ul");
  for (const each of evidence.others) {
    list.append(make("li", `${each.reviewer}: ${NAMES[key(each.label)]}${each.reason ? ` (${each.reason})` : ""}`));
  }
  return part("Other reviewers", list);
}

function replies(evidence) {
  const nodes = evidence.replies.map((each) =>
    folded(each.problem ? `${each.role}, asked again: ${each.problem}` : each.role, each.reply, `Reply of ${each.role}`));
  return nodes.length ? part("Replies of the model", ...nodes) : null;
}

function tellEvidence() {
  const { evidence } = shown;
  $("evidence").hidden = !evidence;
  $("evidence").replaceChildren();
  if (!evidence) return;
  const lost = evidence.kept ? null : make("p", "The run's folder has no evidence of this pair.");
  const parts = [verdict(evidence), others(evidence), lost, test(evidence), program(evidence), replies(evidence)];
  $("evidence").append(...parts.filter(Boolean));
}

// ---- the rest of the page

function tellSession() {
  const { guidelines } = session;
  put($("session"), `${session.run} · ${session.queue} · ${session.reviewer}${session.blind ? " · blind" : ""}`);
  const list = document.createElement("ul");
  list.append(...guidelines.notes.map((note) => make("li", note)));
  const meanings = document.createElement("dl");
  meanings.append(make("dt", "1, match"), make("dd", guidelines.one), make("dt", "0, no match"), make("dd", guidelines.zero));
  $("guidelines-text").append(make("p", `Criterion: ${guidelines.criterion}.`), meanings, list);
}

const KEYS = {
  1: () => choose("1"),
  0: () => choose("0"),
  "?": () => choose("?"),
  r: () => $("reason").focus(),
  j: () => show(number + 1),
  ArrowRight: () => show(number + 1),
  k: () => show(number - 1),
  ArrowLeft: () => show(number - 1),
  u: undo,
  g: () => { $("guidelines").open = !$("guidelines").open; },
  h: () => $("help").showModal(),
  Enter: commit,
};

const held = [];

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || event.defaultPrevented) return;
  if ($("help").open) {
    if (event.key === "h") $("help").close();
    return;
  }
  if (event.repeat && event.key === "Enter") event.preventDefault();
  else if (busy && event.key !== "Tab") { event.preventDefault(); held.push(event); }
  else if (handle(event, event.target)) event.preventDefault();
}

// Does what a key says, and tells whether it said anything. What is typed into a text the browser itself puts there,
// unless it had to wait.
function handle({ key: name, shiftKey, defaultPrevented }, target) {
  if (target === $("reason")) {
    if (name === "Escape") target.blur();
    else if (name === "Enter" && !shiftKey) commit();
    else if (defaultPrevented && (name.length === 1 || name === "Enter")) {
      target.setRangeText(name === "Enter" ? "\n" : name, target.selectionStart, target.selectionEnd, "end");
      target.dispatchEvent(new Event("input"));
    } else return false;
    return true;
  }
  if (name === "Enter" && target.closest("button, summary")) return false; // it does what it says
  if (name.startsWith("Arrow") && target.closest("pre")) return false; // it scrolls
  KEYS[name]?.();
  return name in KEYS;
}

async function begin() {
  // The token stays out of the history; the cookie has it now.
  history.replaceState(null, "", location.pathname);
  if (matchMedia("(max-width: 60rem)").matches) $("guidelines").open = false;
  try {
    session = await ask("api/session");
  } catch (error) {
    document.querySelector("main").prepend(make("p", error.message, "trouble"));
    return;
  }
  tellSession();
  forgetOldDrafts();
  document.addEventListener("keydown", onKey);
  $("form").addEventListener("submit", (event) => { event.preventDefault(); commit(); });
  $("reason").addEventListener("input", () => { refresh(); keepDraft(); });
  for (const button of document.querySelectorAll("[data-label]")) {
    button.addEventListener("click", (event) => {
      if (!busy) choose(button.dataset.label);
      if (event.detail) button.blur(); // after a click of the mouse Enter commits
    });
  }
  $("previous").addEventListener("click", () => show(number - 1));
  $("next").addEventListener("click", () => show(number + 1));
  $("open-help").addEventListener("click", () => $("help").showModal());
  show(Math.max(0, session.reviewed.indexOf(false)), left() ? "" : ended());
}

begin();
