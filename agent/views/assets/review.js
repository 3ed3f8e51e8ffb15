// The review page: pairs, evidence, drafts, commits and keys.

const $ = byId;
const NAMES = {}; // of the labels, from the guidelines
const labelKey = (label) => (label === null ? "?" : String(label));
const reviewKey = ({ label, choice }) => choice ?? labelKey(label);
const setText = (node, text) => node.replaceChildren(textNodes(text));

let session = null;
let number = 0;
let current = null; // the pair as received from the server
let label = null; // "1", "0", "?", a choice such as "first", or null
let busy = false;
let saving = false; // a commit is in flight; a second one would skip the evidence of this pair
const committed = []; // numbers of the pairs that were committed on this page, in order

async function request(path, body) {
  const options = body === undefined ? {} : {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
  };
  let response;
  try {
    response = await fetch(path, { ...options, credentials: "same-origin", cache: "no-store" });
  } catch {
    throw new Error("The server is not responding. Check that the command is still running. Saved reviews are safe.");
  }
  if (response.status === 403) throw new Error(await response.text());
  const content = await response.json().catch(() => ({ error: `The server failed (${response.status}). The terminal that runs the command shows the cause.` }));
  if (!response.ok) throw new Error(content.error);
  return content;
}

function updateDraft() {
  const mine = getCommitted();
  const draft = { label, reason: $("reason").value };
  if (draft.label === mine.label && draft.reason === mine.reason) deleteDraft(session, number);
  else saveDraft(session, number, draft);
}

function getCommitted() {
  return current?.mine ? { label: reviewKey(current.mine), reason: current.mine.reason } : { label: null, reason: "" };
}

function isChanged() {
  const mine = getCommitted();
  return label !== mine.label || $("reason").value.trim() !== mine.reason;
}

function choose(value) {
  if (!current) return;
  label = value;
  refresh();
  updateDraft();
}

function showError(message, element = $("trouble")) {
  setText(element, message);
  element.hidden = !message;
}

function refresh() {
  for (const button of document.querySelectorAll("[data-label]")) {
    button.setAttribute("aria-pressed", String(button.dataset.label === label));
  }
  const done = current?.mine && !isChanged();
  setText($("commit-name"), done ? "Next" : current?.mine ? "Commit again" : "Commit");
  $("commit").setAttribute("aria-disabled", String(busy));
  const count = session.reviewed.filter(Boolean).length;
  const total = session.reviewed.length;
  setText($("position"), `${number + 1} of ${total} · ${count} reviewed`);
  $("progress").max = total;
  $("progress").value = count;
  $("previous").disabled = number === 0;
  $("next").disabled = number === total - 1;
  document.title = `${number + 1}/${total} · Review`;
}

// Run one task at a time. Later keys and clicks wait until the task ends, so they apply to the pair that the task loads.
async function runTask(task) {
  if (busy) return;
  busy = true;
  refresh();
  try {
    await task();
  } catch (error) {
    showError(error.message);
  } finally {
    busy = saving = false;
    refresh();
    while (waiting.length && !busy) waiting.shift()();
  }
}

async function fetchPair(at) {
  const data = await request(`api/pairs/${at}`);
  if (data.reviewer === session.reviewer) return data;
  throw new Error(`Another tab changed the reviewer to ${data.reviewer}. Reload the page or change the name back.`);
}

function show(at, message) {
  if (at >= 0 && at < session.reviewed.length) runTask(() => load(at, message));
}

async function load(at, message = "") {
  const data = await fetchPair(at);
  number = at;
  current = data;
  const text = loadDraft(session, number) ?? getCommitted();
  label = text.label;
  $("reason").value = text.reason;
  $("reason").blur();
  setText($("query"), data.pair.query);
  setText($("code"), data.pair.code);
  setText($("language"), `(${data.pair.language})`);
  const beside = data.pair.first ?? data.pair.context;
  setText($("context"), beside);
  $("context-part").hidden = !beside;
  $("work").hidden = false;
  showError("");
  setText($("status"), message || (data.mine ? `Your label: ${NAMES[reviewKey(data.mine)]}.` : ""));
  showEvidence();
  window.scrollTo(0, 0);
}

function commit() {
  if (busy || !current) return;
  if (current.mine && !isChanged()) { showNextUnreviewed(); return; }
  if (label === null) { showError("Choose a label first."); return; }
  saving = true;
  runTask(async () => {
    setText($("status"), "Saving …");
    const value = session.guidelines.values.find((known) => labelKey(known) === label);
    const review = { [typeof value === "string" ? "choice" : "label"]: value, reason: $("reason").value, reviewer: session.reviewer };
    try {
      current.mine = (await request(`api/pairs/${number}`, review)).saved;
    } catch (error) {
      setText($("status"), "");
      throw new Error(`Not saved. ${error.message} Your label and text remain on this page.`);
    }
    // Changes made with the mouse during the request become a draft.
    if ($("reason").value === review.reason) $("reason").value = current.mine.reason;
    $("reason").blur();
    session.reviewed[number] = true;
    committed.push(number);
    updateDraft();
    showError("");
    setText($("status"), `Saved: ${NAMES[reviewKey(current.mine)]}. ${countUnreviewed() ? "" : describeEnd()}`);
    current = await fetchPair(number);
    showEvidence();
  });
}

const findFirstUnreviewed = () => Math.max(0, session.reviewed.indexOf(false));
const countUnreviewed = () => session.reviewed.filter((reviewed) => !reviewed).length;
const describeEnd = () => `All pairs (${session.reviewed.length}) have been reviewed. Press Ctrl-C in the terminal to stop the server.`;

function showNextUnreviewed() {
  const total = session.reviewed.length;
  for (let step = 1; step < total; step += 1) {
    const at = (number + step) % total;
    if (!session.reviewed[at]) { show(at); return; }
  }
  setText($("status"), describeEnd());
}

function undo() {
  const last = committed.length ? committed[committed.length - 1] : session.reviewed.lastIndexOf(true, number - 1);
  if (last < 0) { setText($("status"), "Nothing to undo."); return; }
  committed.pop();
  show(last, "Change the label or reason and commit again to replace your review.");
}

// A dialog that closes restores the focus, and a focused button would receive the next press of Enter.
function openDialog(id) {
  document.activeElement.blur();
  $(id).showModal();
}

function openReviewerDialog() {
  $("name").value = session.reviewer;
  showError("", $("who-trouble"));
  showError(current && isChanged() ? `Your uncommitted input for this pair is saved as ${session.reviewer}'s draft.` : "", $("who-draft"));
  openDialog("who");
  $("name").select();
}

function changeReviewer() {
  runTask(async () => {
    let data;
    try {
      data = await request("api/reviewer", { reviewer: $("name").value });
    } catch (error) {
      showError(error.message, $("who-trouble"));
      return;
    }
    $("who").close();
    $("open-who").blur();
    if (data.reviewer === session.reviewer) return;
    // Clear the previous reviewer's pair first, in case loading the next pair fails.
    session = data;
    current = label = null;
    committed.length = 0;
    $("reason").value = "";
    $("work").hidden = $("evidence").hidden = true;
    $("evidence").replaceChildren();
    showSession();
    await load(findFirstUnreviewed(), `You are reviewing as ${session.reviewer}. ${countUnreviewed() ? "" : describeEnd()}`);
  });
}

function showSession() {
  setText($("session"), `${session.run} · ${session.queue}${session.blind ? " · blind" : ""}`);
  setText($("reviewer"), session.reviewer);
  $("guidelines-text").replaceChildren(...buildGuidelines(session.guidelines));
}

const KEYS = {
  r: () => $("reason").focus(),
  j: () => show(number + 1),
  ArrowRight: () => show(number + 1),
  k: () => show(number - 1),
  ArrowLeft: () => show(number - 1),
  u: undo,
  n: openReviewerDialog,
  g: () => { $("guidelines").open = !$("guidelines").open; },
  "?": () => openDialog("help"),
  h: () => openDialog("help"),
  Enter: commit,
};

const TEXTS = {
  reason: { submit: commit, leave: () => $("reason").blur() },
  name: { submit: changeReviewer, leave: () => $("who").close() },
};

const waiting = [];

function runWhenIdle(task) {
  if (busy) waiting.push(task);
  else task();
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || event.defaultPrevented) return;
  if ($("who").open) return;
  if ($("help").open) {
    if (event.key === "h" || event.key === "?") $("help").close();
    return;
  }
  if (event.repeat && event.key === "Enter") event.preventDefault();
  else if (busy && event.key !== "Tab") { event.preventDefault(); runWhenIdle(() => handle(event, document.activeElement)); }
  else if (handle(event, event.target)) event.preventDefault();
}

// Handle a key. Return false to leave the key to the browser, which inserts typed text unless the key had to wait.
function handle({ key: name, shiftKey, defaultPrevented }, target) {
  // A closed dialog keeps the focus for a moment.
  const closed = target.closest("dialog:not([open])");
  const text = closed ? null : TEXTS[target.id];
  if (text) {
    if (name === "Escape") text.leave();
    else if (name === "Enter" && !shiftKey) text.submit();
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
  $("evidence").replaceChildren(...(current.evidence ? buildEvidence(current).filter(Boolean) : []));
}

function buildEvidence({ evidence, mine }) {
  const { ended, rounds, others } = evidence;
  const name = ended === "error" ? "none (error)" : NAMES[ended] ? `${ended} (${NAMES[ended]})` : ended;
  const both = mine && mine.label !== null && NAMES[ended];
  const agreement = !both ? "" : String(mine.label) === ended ? ". You agree." : ". You disagree.";
  const several = rounds.length > 1;
  return [
    make("h2", {}, `The run's label: ${name}${several ? `, by the majority of ${rounds.length} rounds` : ""}${agreement}`),
    buildFacts({
      pair: evidence.id,
      ...(evidence.why.length > 0 && { "reasons for review": evidence.why.join(", ") }),
      ...(several && { rounds: rounds.join(", "), "evidence from": `round ${evidence.round}` }),
    }),
    others.length > 0 && make("section", {}, make("h3", {}, "Other reviewers"), make("ul", {}, others.map((review) =>
      make("li", {}, `${review.reviewer}: ${NAMES[reviewKey(review)]}${review.reason ? ` (${review.reason})` : ""}`)))),
    !evidence.kept && make("p", {}, "The run folder has no evidence for this pair."),
    buildSteps(evidence.story),
  ];
}

function buildGuidelines({ criterion, one, zero, notes, keys, names }) {
  return [
    make("p", {}, `Criterion: ${criterion}.`),
    make("dl", {}, [one, zero].map((text, at) => [make("dt", {}, `${keys[at]}, ${names[at]}`), make("dd", {}, text)])),
    make("ul", {}, notes.map((note) => make("li", {}, note))),
  ];
}

async function start() {
  // Remove the token from the browser history. From now on, the cookie contains the token.
  history.replaceState(null, "", location.pathname);
  if (matchMedia("(max-width: 60rem)").matches) $("guidelines").open = false;
  try {
    session = await request("api/session");
  } catch (error) {
    document.querySelector("main").prepend(make("p", { class: "trouble" }, error.message));
    return;
  }
  showSession();
  forgetOldDrafts(session);
  document.addEventListener("keydown", onKey);
  $("form").addEventListener("submit", (event) => { event.preventDefault(); if (!saving) runWhenIdle(commit); });
  $("reason").addEventListener("input", () => { refresh(); updateDraft(); });
  const { values, keys, names, headings, side_by_side: sideBySide } = session.guidelines;
  document.body.classList.toggle("comparison", sideBySide);
  for (const [id, text] of Object.entries({ "context-name": headings[0], "code-name": headings[1], keys: keys.join(" "), names: names.join(", ") })) setText($(id), text);
  for (const [at, button] of document.querySelectorAll("[data-label]").entries()) {
    button.dataset.label = labelKey(values[at]);
    NAMES[button.dataset.label] = names[at];
    KEYS[keys[at]] = () => choose(button.dataset.label);
    button.setAttribute("aria-keyshortcuts", keys[at]);
    button.append(make("kbd", {}, keys[at]), ` ${names[at][0].toUpperCase()}${names[at].slice(1)}`);
    button.addEventListener("click", (event) => {
      runWhenIdle(() => choose(button.dataset.label));
      if (event.detail) button.blur(); // after a mouse click, Enter should commit
    });
  }
  $("previous").addEventListener("click", () => runWhenIdle(() => show(number - 1)));
  $("next").addEventListener("click", () => runWhenIdle(() => show(number + 1)));
  $("open-help").addEventListener("click", () => openDialog("help"));
  $("open-who").addEventListener("click", () => runWhenIdle(openReviewerDialog));
  $("keep-name").addEventListener("click", () => $("who").close());
  $("who-form").addEventListener("submit", (event) => { event.preventDefault(); changeReviewer(); });
  show(findFirstUnreviewed(), countUnreviewed() ? "" : describeEnd());
}

start();
