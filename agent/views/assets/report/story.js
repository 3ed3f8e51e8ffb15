// One pair, opened: its label, query, code, test, and what led to them.

let opened = null;

const text = (content, kind = "") => make("pre", { class: kind, dir: kind === "prose" ? "auto" : "ltr" }, content);
const part = (title, ...content) => make("section", {}, make("h3", {}, title), content);
const folded = (title, open, ...content) => make("details", { open }, make("summary", {}, title), content);
const listed = (title, values) => values?.length > 0 && part(title, make("ul", {}, values.map((value) => make("li", {}, value))));
const tokens = (usage) => `${(usage.input_tokens ?? 0).toLocaleString("en")} tokens in, ${(usage.output_tokens ?? 0).toLocaleString("en")} out`;

async function openPair(row) {
  opened = row;
  const [story, evidence] = await Promise.all([storyOf(row), evidenceOf(row)]);
  const exchanges = evidence?.exchanges ? await Promise.all(evidence.exchanges.map(exchangeOf)) : [];
  if (opened !== row) return;
  byId("pair-title").replaceChildren(shown(nameOf(row)));
  byId("story").replaceChildren(...storyParts(row, story ?? { query: row.query }, evidence, exchanges).filter(Boolean));
  const place = found.indexOf(row);
  byId("pair-back").disabled = place <= 0;
  byId("pair-next").disabled = place < 0 || place + 1 >= found.length;
  if (!byId("pair").open) byId("pair").showModal();
  byId("pair").scrollTop = 0;
  byId("pair-title").focus();
}

function storyParts(row, story, evidence, exchanges) {
  return [
    chips(row, story),
    story.error && part("No label", text(`${story.error.type}: ${story.error.message}`, "prose")),
    story.reason && part("Reason", text(story.reason, "prose")),
    part("Query", text(story.query, "prose")),
    story.context && part("Context", text(story.context)),
    story.code !== undefined && part("Code", text(story.code)),
    story.reading && part("Reading", text(story.reading, "prose")),
    evidence?.spec && specOf(evidence.spec),
    story.test && part("Test", reportOf(story.test)),
    story.simulated && part("Predicted, not run", text(`${story.simulated.status}\n${story.simulated.reason}`, "prose")),
    listed("Stand-ins", story.stand_ins),
    evidence?.mutants && mutantsOf(evidence.mutants),
    evidence?.executions && part("Executions", evidence.executions.map((each, place) =>
      executionOf(each, place, place === evidence.executions.length - 1, story.test))),
    evidence?.commands && part("Repairs", evidence.commands.map((each) =>
      folded(`${each.outcome}: ${each.command}`, false, text(each.output || "(no output)")))),
    listed("Installed", story.installed),
    exchanges.length > 0 && part("Prompts and replies", exchanges),
    evidence?.visits && part("Way through the graph", tableOf({
      columns: ["node", "outcome", "time"], numeric: [2],
      rows: evidence.visits.map(([node, outcome, seconds]) => [node, outcome, `${number(seconds, 3)} s`]) })),
    story.meta && folded("Other fields of the input", false, text(story.meta)),
    evidence === null && make("p", { class: "note" }, "Nothing is kept of what led to this label, or it was not asked for."),
    evidence === undefined && make("p", { class: "note" }, "What led to this label was left out to keep the file small: agent show tells it."),
  ];
}

function chips(row, story) {
  const known = [
    chip(row.label === "1" ? "label 1, match" : row.label === "0" ? "label 0, no match" : row.label, row.label),
    REPORT.rounds > 1 && chip(`majority of the rounds: ${row.majority}`, row.majority),
    row.decided_by && chip(`decided by ${row.decided_by}`),
    row.gold !== null && chip(`people: ${row.gold}`, String(row.gold)),
    row.against ? chip("against its test", "error") : null,
    story.abstained && chip("abstained"),
    row.confidence !== null && chip(`confidence ${number(row.confidence)}`),
    row.strength !== null && chip(`strength ${number(row.strength)}`),
    story.votes && chip(`votes ${story.votes.map((vote) => vote ?? "–").join(" ")}`),
    chip(`${number(row.seconds, 1)} s`),
    story.usage && chip(`${story.usage.calls} calls, ${tokens(story.usage)}, ${money(row.cost)}`),
  ];
  return make("p", { class: "chips" }, known);
}

function specOf(spec) {
  return part("Readings of the query", make("ol", {}, spec.readings.map((reading) => make("li", {}, reading.text,
    make("ul", {}, (reading.requirements ?? []).map((each) => make("li", {}, each)))))));
}

function reportOf(report) {
  const kind = { passed: "1", failed: "0" }[report.status];
  return [
    make("p", { class: "chips" }, chip(report.status, kind), report.cause && chip(`cause: ${report.cause}`)),
    report.message && text(report.message),
    report.cases.length > 0 && tableOf({ columns: ["case", "outcome", "message"], numeric: [],
      rows: report.cases.map(([name, outcome, message, cause]) => [name, cause ? `${outcome}, ${cause}` : outcome, message]) }),
  ];
}

function mutantsOf(wrong) {
  return part("Mutants in its place", tableOf({ columns: ["kind", "change", "program"], numeric: [],
    rows: wrong.map((each) => [each.kind, each.change, each.status === "passed" ? "did not notice" : each.status]) }));
}

// The report of the last one is the pair's own, which stands above.
function executionOf(run, place, open, told) {
  const ended = [
    `${number(run.seconds ?? 0)} s`,
    run.exit_code !== undefined && `exit code ${run.exit_code}`,
    run.signal !== undefined && `signal ${run.signal}`,
    run.timed_out && "out of time",
    run.shared && "run before, by another variant",
  ].filter(Boolean).join(", ");
  return folded(`Execution ${place + 1}: ${run.report.status}, ${ended}`, open,
    !(open && told) && reportOf(run.report),
    folded("Program as it was run", open, text(run.source ?? "")),
    run.stdout && folded("Standard output", false, text(run.stdout)),
    run.stderr && folded("Standard error", false, text(run.stderr)),
    run.installed && make("p", { class: "quiet small" }, `with ${run.installed.join(", ")}`),
    run.environment && make("p", { class: "quiet small" }, `environment ${run.environment}`));
}

async function exchangeOf(exchange) {
  const messages = await Promise.all(exchange.messages.map(async ([role, content]) =>
    [role, typeof content === "number" ? await sharedText(content) : content]));
  const saved = exchange.saved ? `, it cost ${money(exchange.saved)} once` : "";
  const paid = exchange.cached ? `from the cache${saved}` : tokens(exchange.usage);
  const time = exchange.seconds === null ? "" : `, ${number(exchange.seconds)} s`;
  return folded(`${exchange.role}: ${exchange.model || "model"}, ${paid}${time}`, false,
    exchange.problem && make("p", { class: "note" }, `Could not be used: ${exchange.problem}`),
    text(exchange.reply || "(no reply)"),
    folded("Prompt", false, messages.map(([role, content]) => [make("h4", {}, role), text(content)]).flat()));
}

function step(by) {
  const next = found[found.indexOf(opened) + by];
  if (!opened || !next) return;
  while (found.indexOf(next) < first && turn(-1));
  while (found.indexOf(next) >= first + PAGE && turn(1));
  openPair(next);
}

byId("pair-back").addEventListener("click", () => step(-1));
byId("pair-next").addEventListener("click", () => step(1));
byId("pair-close").addEventListener("click", () => byId("pair").close());
byId("pair").addEventListener("click", (event) => { if (event.target === byId("pair")) byId("pair").close(); });
byId("pair").addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey) return;
  if (event.key === "ArrowLeft") step(-1);
  if (event.key === "ArrowRight") step(1);
});
byId("pair").addEventListener("close", () => {
  const row = byId("table").querySelector(`tr[data-place="${opened?.place}"]`);
  opened = null;
  row?.querySelector("button.open").focus();
});
