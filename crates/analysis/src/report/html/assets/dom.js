// Elements, made without ever parsing a name as markup.

const SVG = 'http://www.w3.org/2000/svg';

export function byId(id) {
  return document.getElementById(id);
}

// Children are nodes, or texts that become text nodes.
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) {
      element.addEventListener(name.slice(2), value);
    } else if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(name, value === true ? '' : value);
    }
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

// The policy forbids style attributes; the object model is allowed.
export function place(element, styles) {
  for (const [name, value] of Object.entries(styles)) {
    element.style.setProperty(name, value);
  }
  return element;
}

export function button(text, onclick, attributes = {}) {
  return el('button', { type: 'button', onclick, ...attributes }, text);
}

// Draws when an element is there, and whenever it becomes wider or narrower. What is drawn may make
// it taller, which is no reason to draw again.
export function onWidth(element, draw) {
  let width = -1;
  new ResizeObserver(() => {
    if (element.clientWidth !== width) {
      width = element.clientWidth;
      requestAnimationFrame(draw);
    }
  }).observe(element);
}

const tip = byId('tip');

// Shows some lines beside the pointer, or below an element.
export function showTip(lines, where) {
  tip.replaceChildren(...lines.map((line, n) => el('div', { class: n === 0 ? 'first' : null }, line)));
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = Math.max(4, Math.min(where.x + 12, innerWidth - box.width - 8));
  const below = where.y + 16;
  const top = below + box.height > innerHeight ? Math.max(4, where.y - box.height - 10) : below;
  place(tip, { left: `${left}px`, top: `${top}px` });
}

export function hideTip() {
  tip.hidden = true;
}
