// The review page: what it shows when, drafts, commits and keys.

const $ = byId;
const NAMES = { 1: "match", 0: "no match", "?": "cannot decide" };
const key = (label) => (label === null ? "?" : String(label));
const put = (node, text) => node.replaceChildren(shown(text));

let session = null;
let number = 0;
let current = null; // the pair as received from the server
let label = null; // "1", "0", "?" or null
let busy = false;
let saving = false; // a commit is in flight; a second one would skip the evidence of this pair
const committed = []; // numbers, in the order of this page's commits

async function ask(path, body) {
  const options = body === undefined ? {} : {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
  };
  let response;
  try {
    response = await fetch(path, { ...options, credentials: "same-origin", cache: "no-store" });
  } catch {
    throw new Error("The server does not respond. Check that `agent review` is still running. Saved reviews are safe.");
  }
  if (response.status === 403) throw new Error(await response.text());
  const content = await response.json().catch(() => ({ error: `The server failed (${response.status}). See its terminal for the cause.` }));
  if (!response.ok) throw new Error(content.error);
  return content;
}

function keepTyped() {
  const mine = committedOf();
  const draft = { label, reason: $("reason").value };
  if (draft.label === mine.label && draft.reason === mine.reason) dropDraft(session, number);
  else keepDraft(session, number, draft);
}

function committedOf() {
  return current?.mine ? { label: key(current.mine.label), reason: current.mine.reason } : { label: null, reason: "" };
}

function dirty() {
  const mine = committedOf();
  return label !== mine.label || $("reason").value.trim() !== mine.reason;
}

function choose(value) {
  if (!current) return;
  label = value;
  refresh();
  keepTyped();
}

function trouble(message, place = $("trouble")) {
  put(place, message);
  place.hidden = !message;
}

function refresh() {
  for (const button of document.querySelectorAll("[data-label]")) {
    button.setAttribute("aria-pressed", String(button.dataset.label === label));
  }
  const done = current?.mine && !dirty();
  put($("commit-name"), done ? "Next" : current?.mine ? "Commit again" : "Commit");
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

// Run one task at a time. Keys and clicks wait until it ends, so they apply to the pair that is current then.
async function alone(work) {
  if (busy) return;
  busy = true;
  refresh();
  try {
    await work();
  } catch (error) {
    trouble(error.message);
  } finally {
    busy = saving = false;
    refresh();
    while (waiting.length && !busy) waiting.shift()();
  }
}

async function pairAt(at) {
  const answer = await ask(`api/pairs/${at}`);
  if (answer.reviewer === session.reviewer) return answer;
  throw new Error(`Another tab changed the reviewer to ${answer.reviewer}. Reload the page or change the name back.`);
}

function show(at, message) {
  if (at >= 0 && at < session.reviewed.length) alone(() => load(at, message));
}

async function load(at, message = "") {
  const answer = await pairAt(at);
  number = at;
  current = answer;
  const text = draftOf(session, number) ?? committedOf();
  label = text.label;
  $("reason").value = text.reason;
  $("reason").blur();
  put($("query"), answer.pair.query);
  put($("code"), answer.pair.code);
  put($("language"), `(${answer.pair.language})`);
  put($("context"), answer.pair.context);
  $("context-part").hidden = !answer.pair.context;
  $("work").hidden = false;
  trouble("");
  put($("status"), message || (answer.mine ? `Your label: ${NAMES[key(answer.mine.label)]}.` : ""));
  showEvidence();
  window.scrollTo(0, 0);
}

function commit() {
  if (busy || !current) return;
  if (current.mine && !dirty()) { goOn(); return; }
  if (label === null) { trouble("Choose a label first: 1, 0 or c."); return; }
  saving = true;
  alone(async () => {
    put($("status"), "Saving …");
    const review = { label: label === "?" ? null : Number(label), reason: $("reason").value, reviewer: session.reviewer };
    try {
      current.mine = (await ask(`api/pairs/${number}`, review)).saved;
    } catch (error) {
      put($("status"), "");
      throw new Error(`Not saved. ${error.message} Your label and text remain on this page.`);
    }
    // Keep changes made with the mouse in the meantime as a draft.
    if ($("reason").value === review.reason) $("reason").value = current.mine.reason;
    $("reason").blur();
    session.reviewed[number] = true;
    committed.push(number);
    keepTyped();
    trouble("");
    put($("status"), `Saved: ${NAMES[key(current.mine.label)]}. ${countLeft() ? "" : describeEnd()}`);
    current = await pairAt(number);
    showEvidence();
  });
}

const firstLeft = () => Math.max(0, session.reviewed.indexOf(false));
const countLeft = () => session.reviewed.filter((reviewed) => !reviewed).length;
const describeEnd = () => `All ${session.reviewed.length} pairs are reviewed. Press Ctrl-C in the terminal to stop.`;

function goOn() {
  const total = session.reviewed.length;
  for (let step = 1; step < total; step += 1) {
    const at = (number + step) % total;
    if (!session.reviewed[at]) { show(at); return; }
  }
  put($("status"), describeEnd());
}

function undo() {
  const last = committed.length ? committed[committed.length - 1] : session.reviewed.lastIndexOf(true, number - 1);
  if (last < 0) { put($("status"), "Nothing to undo."); return; }
  committed.pop();
  show(last, "Change the label or reason and commit again to replace your review.");
}

// A closed dialog restores the focus, and a focused button would receive the next Enter.
function openDialog(id) {
  document.activeElement.blur();
  $(id).showModal();
}

function openWho() {
  $("name").value = session.reviewer;
  trouble("", $("who-trouble"));
  trouble(current && dirty() ? `Your uncommitted input for this pair is kept for ${session.reviewer}.` : "", $("who-draft"));
  openDialog("who");
  $("name").select();
}

function takeName() {
  alone(async () => {
    let answer;
    try {
      answer = await ask("api/reviewer", { reviewer: $("name").value });
    } catch (error) {
      trouble(error.message, $("who-trouble"));
      return;
    }
    $("who").close();
    $("open-who").blur();
    if (answer.reviewer === session.reviewer) return;
    // Clear the previous reviewer's pair first, in case loading the next one fails.
    session = answer;
    current = label = null;
    committed.length = 0;
    $("reason").value = "";
    $("work").hidden = $("evidence").hidden = true;
    $("evidence").replaceChildren();
    showSession();
    await load(firstLeft(), `You are reviewing as ${session.reviewer}. ${countLeft() ? "" : describeEnd()}`);
  });
}

function showSession() {
  put($("session"), `${session.run} · ${session.queue}${session.blind ? " · blind" : ""}`);
  put($("reviewer"), session.reviewer);
  $("guidelines-text").replaceChildren(...guidelineParts(session.guidelines));
}

const KEYS = {
  1: () => choose("1"),
  0: () => choose("0"),
  c: () => choose("?"),
  r: () => $("reason").focus(),
  j: () => show(number + 1),
  ArrowRight: () => show(number + 1),
  k: () => show(number - 1),
  ArrowLeft: () => show(number - 1),
  u: undo,
  n: openWho,
  g: () => { $("guidelines").open = !$("guidelines").open; },
  "?": () => openDialog("help"),
  h: () => openDialog("help"),
  Enter: commit,
};

const TEXTS = {
  reason: { take: commit, leave: () => $("reason").blur() },
  name: { take: takeName, leave: () => $("who").close() },
};

const waiting = [];

function soon(work) {
  if (busy) waiting.push(work);
  else work();
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || event.defaultPrevented) return;
  if ($("who").open) return;
  if ($("help").open) {
    if (event.key === "h" || event.key === "?") $("help").close();
    return;
  }
  if (event.repeat && event.key === "Enter") event.preventDefault();
  else if (busy && event.key !== "Tab") { event.preventDefault(); soon(() => handle(event, document.activeElement)); }
  else if (handle(event, event.target)) event.preventDefault();
}

// Handle a key and return whether it has a meaning. The browser inserts typed text itself, unless the key had to wait.
function handle({ key: name, shiftKey, defaultPrevented }, target) {
  // A closed dialog keeps the focus for a moment.
  const closed = target.closest("dialog:not([open])");
  const text = closed ? null : TEXTS[target.id];
  if (text) {
    if (name === "Escape") text.leave();
    else if (name === "Enter" && !shiftKey) text.take();
    else if (defaultPrevented && (name.length === 1 || name === "Enter")) {
      target.setRangeText(name === "Enter" ? "\n" : name, target.selectionStart, target.selectionEnd, "end");
      target.dispatchEvent(new Event("input"));
    } else return false;
    return true;
  }
  if (name === "Enter" && !closed && target.closest("button, summary")) return false; // the browser activates it
  if (name.startsWith("Arrow") && target.closest("pre")) return false; // the browser scrolls
  KEYS[name]?.();
  return name in KEYS;
}

function showEvidence() {
  $("evidence").hidden = !current.evidence;
  $("evidence").replaceChildren(...(current.evidence ? evidenceParts(current).filter(Boolean) : []));
}

function evidenceParts({ evidence, mine }) {
  const { ended, rounds, others } = evidence;
  const name = ended === "error" ? "no label (error)" : NAMES[ended] ? `${ended} (${NAMES[ended]})` : ended;
  const both = mine && mine.label !== null && NAMES[ended];
  const agreement = !both ? "" : String(mine.label) === ended ? ". You agree." : ". You disagree.";
  const several = rounds.length > 1;
  return [
    make("h2", {}, `The run: ${name}${several ? `, by the majority of ${rounds.length} rounds` : ""}${agreement}`),
    factsOf({
      pair: evidence.id,
      ...(evidence.why.length > 0 && { "reasons for review": evidence.why.join(", ") }),
      ...(several && { rounds: rounds.join(", "), "evidence from": `round ${evidence.round}` }),
    }),
    others.length > 0 && make("section", {}, make("h3", {}, "Other reviewers"), make("ul", {}, others.map((review) =>
      make("li", {}, `${review.reviewer}: ${NAMES[key(review.label)]}${review.reason ? ` (${review.reason})` : ""}`)))),
    !evidence.kept && make("p", {}, "The run folder has no evidence for this pair."),
    stepsOf(evidence.story),
  ];
}

function guidelineParts({ criterion, one, zero, notes }) {
  return [
    make("p", {}, `Criterion: ${criterion}.`),
    make("dl", {}, make("dt", {}, "1, match"), make("dd", {}, one), make("dt", {}, "0, no match"), make("dd", {}, zero)),
    make("ul", {}, notes.map((note) => make("li", {}, note))),
  ];
}

async function begin() {
  // Remove the token from the history. The cookie contains it from now on.
  history.replaceState(null, "", location.pathname);
  if (matchMedia("(max-width: 60rem)").matches) $("guidelines").open = false;
  try {
    session = await ask("api/session");
  } catch (error) {
    document.querySelector("main").prepend(make("p", { class: "trouble" }, error.message));
    return;
  }
  showSession();
  forgetOldDrafts(session);
  document.addEventListener("keydown", onKey);
  $("form").addEventListener("submit", (event) => { event.preventDefault(); if (!saving) soon(commit); });
  $("reason").addEventListener("input", () => { refresh(); keepTyped(); });
  for (const button of document.querySelectorAll("[data-label]")) {
    button.addEventListener("click", (event) => {
      soon(() => choose(button.dataset.label));
      if (event.detail) button.blur(); // after a mouse click, Enter should commit
    });
  }
  $("previous").addEventListener("click", () => soon(() => show(number - 1)));
  $("next").addEventListener("click", () => soon(() => show(number + 1)));
  $("open-help").addEventListener("click", () => openDialog("help"));
  $("open-who").addEventListener("click", () => soon(openWho));
  $("keep-name").addEventListener("click", () => $("who").close());
  $("who-form").addEventListener("submit", (event) => { event.preventDefault(); takeName(); });
  show(firstLeft(), countLeft() ? "" : describeEnd());
}

begin();
