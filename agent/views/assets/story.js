// Renders the steps that agent/views/story.py creates. Large steps are collapsed, except the last program and execution.

const COLLAPSED = new Set(["fields", "reply", "program", "execution", "rerun", "command"]);
const OPEN_LAST = ["program", "execution"];

const buildDetails = (title, open, ...content) => make("details", { open }, make("summary", {}, title), content);

function buildText(content, name, prose = false) {
  return make("pre", { class: prose && "prose", dir: prose ? "auto" : "ltr", tabindex: "0", "aria-label": name }, content);
}

function buildFacts(facts) {
  return facts && make("dl", { class: "facts" },
    Object.entries(facts).map(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
}

function buildOutcomes(outcomes) {
  return make("ul", { class: "outcomes" }, outcomes.map(([word, name, message]) => make("li", {},
    make("span", { class: `outcome ${word}` }, word.replace("_", " ")),
    name && [" ", make("code", {}, name)],
    message && [" ", make("span", { class: "quiet" }, message)])));
}

function buildPart(part, name) {
  if (part.outcomes) return buildOutcomes(part.outcomes);
  const content = buildText(part.text, part.title || name, part.kind === "prose");
  if (!part.title) return content;
  return part.kind === "prose" ? [make("h4", {}, part.title), content] : buildDetails(part.title, false, content);
}

// `shared` contains the system messages that the page stores once for many pairs. Parts refer to them by index.
function buildStep(step, open, shared) {
  if (step.kind === "node_run") return make("p", { class: "node-run quiet small" }, [step.title, ...Object.values(step.facts ?? {})].join(", "));
  const parts = step.parts ?? [];
  const prompts = parts.filter(({ kind }) => kind === "prompt")
    .map((part) => [make("h4", {}, part.title), buildText(part.shared === undefined ? part.text : shared[part.shared], part.title)]);
  const content = [
    parts.filter(({ kind }) => kind !== "prompt").map((part) => buildPart(part, step.title)),
    buildFacts(step.facts),
    prompts.length > 0 && buildDetails("Prompt", false, prompts),
  ];
  if (COLLAPSED.has(step.kind)) return buildDetails(step.title, open, content);
  return make("section", {}, make("h3", {}, step.title), content);
}

function buildSteps(steps, shared = []) {
  const open = OPEN_LAST.map((kind) => steps.findLast((step) => step.kind === kind));
  return make("div", { class: "steps" }, steps.map((step) => buildStep(step, open.includes(step), shared)));
}
