// Drafts of uncommitted input, one per reviewer and pair. Drafts survive closing the tab and remain valid until the
// server stops. If the browser's storage is full or disabled, drafts are lost when the page is closed.

const pageDrafts = new Map();
const draftKey = (session, at) => `review:${session.id}:${session.reviewer}:${at}`;

function forgetOldDrafts(session) {
  try {
    for (const name of Object.keys(localStorage)) {
      if (name.startsWith("review:") && !name.startsWith(`review:${session.id}:`)) localStorage.removeItem(name);
    }
  } catch { /* storage is disabled */ }
}

function saveDraft(session, at, draft) {
  pageDrafts.delete(draftKey(session, at));
  try {
    localStorage.setItem(draftKey(session, at), JSON.stringify(draft));
  } catch {
    pageDrafts.set(draftKey(session, at), draft);
  }
}

function deleteDraft(session, at) {
  pageDrafts.delete(draftKey(session, at));
  try {
    localStorage.removeItem(draftKey(session, at));
  } catch { /* storage is disabled */ }
}

function loadDraft(session, at) {
  try {
    const draft = pageDrafts.get(draftKey(session, at)) ?? JSON.parse(localStorage.getItem(draftKey(session, at)));
    if (draft && typeof draft.reason === "string") return { label: draft.label in NAMES ? draft.label : null, reason: draft.reason };
  } catch { /* there is no draft */ }
  return null;
}
