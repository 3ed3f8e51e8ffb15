// The data of the page: the document with the figures, and pieces that are decompressed on demand.

const REPORT = JSON.parse(byId("document").textContent);
const loaded = new Promise((done) => {
  if (document.readyState === "complete" || document.readyState === "interactive") done();
  else document.addEventListener("DOMContentLoaded", () => done(), { once: true });
});
const inflated = new Map();

async function inflate(text) {
  const packed = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

// Return the records of a piece, or null if the report omits the piece. The latest 12 pieces are cached.
async function loadPiece(kind, number) {
  const id = `${kind}-${number}`;
  if (number >= (REPORT.pieces[kind] ?? 0)) return null;
  if (!byId(id)) await loaded;
  if (!inflated.has(id)) {
    for (const old of inflated.keys()) {
      if (inflated.size < 12) break;
      inflated.delete(old);
    }
    inflated.set(id, inflate(byId(id).textContent));
  }
  return inflated.get(id);
}

// Return all rows as objects, each with its position.
async function loadRows() {
  const packed = Array.from({ length: REPORT.pieces.rows ?? 0 }, (_, number) => inflate(byId(`rows-${number}`).textContent));
  const records = (await Promise.all(packed)).flat();
  return records.map((values, position) => {
    const row = { position };
    REPORT.columns.forEach((name, column) => { row[name] = values[column]; });
    row.marks = row.marks.map((number) => REPORT.marks[number]);
    return row;
  });
}

async function loadStory(row) {
  const size = REPORT.stories_in_a_piece;
  const stories = await loadPiece("stories", Math.floor(row.position / size));
  return stories && stories[row.position % size];
}

// Return the evidence for a label. Return null if the run has none or the report excludes it, or undefined if it
// was omitted because of the size limit.
async function loadEvidence(row) {
  if (!row.evidence) return null;
  const [kind, number, position] = row.evidence;
  const records = await loadPiece(kind, number);
  return records ? records[position] : undefined;
}
