// Helpers that build the page. Text from models and datasets becomes text nodes, never markup.

const NARROW = matchMedia("(max-width: 820px)").matches;
const byId = (id) => document.getElementById(id);

// Control, format, surrogate and private-use characters are invisible or change how text is displayed, so
// they are shown as escapes.
const HIDDEN = /(?![\n\t])[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Zl}\p{Zp}]/gu;

function escapeCharacter(character) {
  const code = character.codePointAt(0);
  if (code < 0x100) return `\\x${code.toString(16).padStart(2, "0")}`;
  if (code < 0x10000) return `\\u${code.toString(16).padStart(4, "0")}`;
  return `\\U${code.toString(16).padStart(8, "0")}`;
}

function escapeHidden(text) {
  return String(text).replace(HIDDEN, escapeCharacter);
}

// Return text as nodes, with hidden characters highlighted.
function textNodes(text) {
  const fragment = document.createDocumentFragment();
  const content = String(text ?? "").replaceAll("\r\n", "\n");
  let end = 0;
  for (const match of content.matchAll(HIDDEN)) {
    if (match.index > end) fragment.append(content.slice(end, match.index));
    const mark = document.createElement("span");
    mark.className = "unseen";
    mark.textContent = escapeCharacter(match[0]);
    fragment.append(mark);
    end = match.index + match[0].length;
  }
  fragment.append(content.slice(end));
  return fragment;
}

// Create an element. Attributes that are functions become event listeners. Children are nodes, strings or null.
function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(key, value);
    else element.setAttribute(key, value === true ? "" : escapeHidden(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : textNodes(child));
  }
  return element;
}
