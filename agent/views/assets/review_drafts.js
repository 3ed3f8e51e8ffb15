// Uncommitted input by reviewer and pair. Drafts survive the tab while the server runs. If storage is full or disabled,
// they last as long as the page.

const unstored = new Map();
const place = (session, at) => `review:${session.id}:${session.reviewer}:${at}`;

function forgetOldDrafts(session) {
  try {
    for (const name of Object.keys(localStorage)) {
      if (name.startsWith("review:") && !name.startsWith(`review:${session.id}:`)) localStorage.removeItem(name);
    }
  } catch { /* storage is disabled */ }
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
  } catch { /* storage is disabled */ }
}

function draftOf(session, at) {
  try {
    const draft = unstored.get(place(session, at)) ?? JSON.parse(localStorage.getItem(place(session, at)));
    if (draft && typeof draft.reason === "string") return { label: draft.label in NAMES ? draft.label : null, reason: draft.reason };
  } catch { /* there is no draft */ }
  return null;
}
