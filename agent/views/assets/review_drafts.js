// What was typed and not committed, by reviewer and pair. Drafts outlive the tab, as long as the server runs; where
// storage is full or switched off they live as long as the page.

const unstored = new Map();
const place = (session, at) => `review:${session.id}:${session.reviewer}:${at}`;

function forgetOldDrafts(session) {
  try {
    for (const each of Object.keys(localStorage)) {
      if (each.startsWith("review:") && !each.startsWith(`review:${session.id}:`)) localStorage.removeItem(each);
    }
  } catch { /* storage is switched off */ }
}

function keepDraft(session, at, draft) {
  unstored.delete(place(session, at));
  try {
    localStorage.setItem(place(session, at), JSON.stringify(draft));
  } catch {
    unstored.set(place(session, at), draft);
  }
}

function dropDraft(session, at) {
  unstored.delete(place(session, at));
  try {
    localStorage.removeItem(place(session, at));
  } catch { /* storage is switched off */ }
}

function draftOf(session, at) {
  try {
    const kept = unstored.get(place(session, at)) ?? JSON.parse(localStorage.getItem(place(session, at)));
    if (kept && typeof kept.reason === "string") return { label: kept.label in NAMES ? kept.label : null, reason: kept.reason };
  } catch { /* none */ }
  return null;
}
