// Makes elements from plain values. Nothing on this page turns a string into HTML.

const SVG = "http://www.w3.org/2000/svg";

function put(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat().filter((each) => each !== null && each !== undefined && each !== false));
  return node;
}

/** Make an element: h("p", {class: "small"}, "text", child). */
export function h(tag, attributes, ...children) {
  return put(document.createElement(tag), attributes, children);
}

/** Make an SVG element. */
export function s(tag, attributes, ...children) {
  return put(document.createElementNS(SVG, tag), attributes, children);
}

/** Set a text only if it differs: so a selection stays, and nothing is repainted. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
  return node;
}

/** Set an attribute only if it differs; null removes it. */
export function mark(node, name, value) {
  if (value === null || value === false) {
    if (node.hasAttribute(name)) node.removeAttribute(name);
  } else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, String(value));
  return node;
}

/** Give a node these children, and move as few as possible. */
export function children(node, wanted) {
  wanted.forEach((each, place) => {
    if (node.children[place] !== each) node.insertBefore(each, node.children[place] ?? null);
  });
  while (node.children.length > wanted.length) node.lastElementChild.remove();
}

/** Elements by key: made once, then updated, and dropped when their key is gone. */
export class Pool {
  constructor(make) {
    this.make = make;
    this.known = new Map();
  }

  of(items, keyOf, update) {
    const seen = new Set();
    const nodes = items.map((item) => {
      const key = keyOf(item);
      seen.add(key);
      if (!this.known.has(key)) this.known.set(key, this.make(item));
      const made = this.known.get(key);
      update(made, item);
      return made.node;
    });
    for (const key of this.known.keys()) if (!seen.has(key)) this.known.delete(key);
    return nodes;
  }
}

export const $ = (id) => document.getElementById(id);
