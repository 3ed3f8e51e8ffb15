// A pair's story in the steps of agent/views/story.py. Large steps are folded, except the last program and execution.

const FOLDED = new Set(["fields", "reply", "program", "execution", "rerun", "mutants", "command"]);
const OPEN_LAST = ["program", "execution"];

const folded = (title, open, ...content) => make("details", { open }, make("summary", {}, title), content);

function text(content, name, prose = false) {
  return make("pre", { class: prose && "prose", dir: prose ? "auto" : "ltr", tabindex: "0", "aria-label": name }, content);
}

function factsOf(facts) {
  return facts && make("dl", { class: "facts" },
    Object.entries(facts).map(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
}

function outcomesOf(outcomes) {
  return make("ul", { class: "outcomes" }, outcomes.map(([word, name, message]) => make("li", {},
    make("span", { class: `outcome ${word}` }, word.replace("_", " ")),
    name && [" ", make("code", {}, name)],
    message && [" ", make("span", { class: "quiet" }, message)])));
}

function partOf(part, name) {
  if (part.outcomes) return outcomesOf(part.outcomes);
  const content = text(part.text, part.title || name, part.kind === "prose");
  if (!part.title) return content;
  return part.kind === "prose" ? [make("h4", {}, part.title), content] : folded(part.title, false, content);
}

// `shared` contains the system messages that many pairs share, by number.
function stepOf(step, open, shared) {
  if (step.kind === "visit") return make("p", { class: "visit quiet small" }, [step.title, ...Object.values(step.facts ?? {})].join(", "));
  const parts = step.parts ?? [];
  const prompts = parts.filter(({ kind }) => kind === "prompt")
    .map((part) => [make("h4", {}, part.title), text(part.shared === undefined ? part.text : shared[part.shared], part.title)]);
  const content = [
    parts.filter(({ kind }) => kind !== "prompt").map((part) => partOf(part, step.title)),
    factsOf(step.facts),
    prompts.length > 0 && folded("Prompt", false, prompts),
  ];
  if (FOLDED.has(step.kind)) return folded(step.title, open, content);
  return make("section", {}, make("h3", {}, step.title), content);
}

function stepsOf(steps, shared = []) {
  const open = OPEN_LAST.map((kind) => steps.findLast((step) => step.kind === kind));
  return make("div", { class: "steps" }, steps.map((step) => stepOf(step, open.includes(step), shared)));
}
