// Puts texts and evidence into the page. Texts of pairs, models and people go in by textContent alone (`put`): they
// stay text.

export const NAMES = { 1: "match", 0: "no match", "?": "cannot decide" };
export const key = (label) => (label === null ? "?" : String(label));

// What cannot be seen, or reorders what can, is shown as an escape; as the terminal shows it.
const ODD = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Zl}\p{Zp}]/u;

export function put(node, text) {
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

export function make(tag, text, name) {
  const node = put(document.createElement(tag), text);
  if (name) node.className = name;
  return node;
}

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

function verdict(evidence, mine) {
  const { annotation } = evidence;
  const error = annotation.error;
  const several = evidence.rounds.length > 1;
  const label = { 1: 1, 0: 0 }[evidence.ended] ?? null;
  const said = evidence.ended === "error" ? "no label, an error" : named(label);
  const title = `The run: ${said}${several ? `, by the majority of ${evidence.rounds.length} rounds` : ""}`;
  const agrees = mine && label !== null && mine.label !== null
    ? (mine.label === label ? ". You agree." : ". You disagree.") : "";
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
      ["rounds", several ? evidence.rounds.map((each) => (each.failed ? "error" : named(each.label))) : []],
      ["evidence of", several ? `round ${evidence.round}: ${error ? "error" : named(annotation.label)}` : ""],
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
  return part(`Test: ${report.outcome.replace("_", " ")}${cause}`, report.message && make("p", report.message), cases);
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
  const nodes = evidence.replies.map((each) => {
    const problem = each.problem ? `, ${each.again ? "asked again" : "unusable"}: ${each.problem}` : "";
    return folded(`${each.role}${problem}`, each.reply, `Reply of ${each.role}`);
  });
  return nodes.length ? part("Replies of the model", ...nodes) : null;
}

export function guidelineParts(guidelines) {
  const list = document.createElement("ul");
  list.append(...guidelines.notes.map((note) => make("li", note)));
  const meanings = document.createElement("dl");
  meanings.append(make("dt", "1, match"), make("dd", guidelines.one), make("dt", "0, no match"), make("dd", guidelines.zero));
  return [make("p", `Criterion: ${guidelines.criterion}.`), meanings, list];
}

export function evidenceParts({ evidence, mine }) {
  const lost = evidence.kept ? null : make("p", "The run's folder has no evidence of this pair.");
  return [verdict(evidence, mine), others(evidence), lost, test(evidence), program(evidence), replies(evidence)].filter(Boolean);
}
