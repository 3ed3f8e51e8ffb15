// The page's data: the figures' document at once, the rest inflated piece by piece when it is asked for.

const REPORT = JSON.parse(byId("document").textContent);
const whole = new Promise((done) => {
  if (document.readyState === "complete" || document.readyState === "interactive") done();
  else document.addEventListener("DOMContentLoaded", () => done(), { once: true });
});
const inflated = new Map();

async function inflate(text) {
  const packed = Uint8Array.from(atob(text), (each) => each.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

// The records of a piece, null when it was left out. Of large kinds a few pieces are kept inflated.
async function piece(kind, number) {
  const id = `${kind}-${number}`;
  if (number >= (REPORT.pieces[kind] ?? 0)) return null;
  if (!byId(id)) await whole;
  if (!inflated.has(id)) {
    for (const old of inflated.keys()) {
      if (inflated.size < 12) break;
      inflated.delete(old);
    }
    inflated.set(id, inflate(byId(id).textContent));
  }
  return inflated.get(id);
}

// All rows, each an object with its place among them.
async function rows() {
  const packed = Array.from({ length: REPORT.pieces.rows ?? 0 }, (_, number) => inflate(byId(`rows-${number}`).textContent));
  const found = (await Promise.all(packed)).flat();
  return found.map((values, place) => {
    const row = { place };
    REPORT.columns.forEach((name, column) => { row[name] = values[column]; });
    row.marks = row.marks.map((number) => REPORT.marks[number]);
    return row;
  });
}

async function storyOf(row) {
  const size = REPORT.stories_in_a_piece;
  const found = await piece("stories", Math.floor(row.place / size));
  return found && found[row.place % size];
}

// What led to a label: null when none was kept, undefined when it was left out of this page.
async function evidenceOf(row) {
  if (!row.evidence) return null;
  const [kind, number, place] = row.evidence;
  const found = await piece(kind, number);
  return found ? found[place] : undefined;
}
