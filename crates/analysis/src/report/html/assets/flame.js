// The flame graph: boxes that are wide enough to be seen, as elements that have names and keys.

import { byId, button, el, hideTip, onWidth, place, showTip } from './dom.js';
import { count, percent, time } from './words.js';
import { CLASSES, page, text } from './data.js';
import { isSearching, isWanted, onSearch } from './search.js';

const ROW = 19;
const NARROWEST = 1.5;
const LABELLED = 28;
const LETTER = 6.6;
const HOW = {
  hops: 'Below each box: whom it waited for, and what that one did meanwhile. The last box of a column is the cause, as far as it is known: its colour, pale where a thread waited for it. Width is time.',
  frames: 'From the top: the thread that waited and its frames; --; who woke it, leaf frame first; what the time was spent on. Width is blocked time.',
};
const KINDS = ['all', 'waiting thread', 'frame', 'hop', 'waited for', 'CPU held by', 'spent on'];

// One box for each hop, or all frames.
let tree = page.hops;
let children = [];
let hidesQuiet = false;
let zoomed = 0;
let focused = 0;
let boxes = new Map();
let canvas;
let crumbs;
let said;

export function showFlame() {
  plant(page.hops.ns[0] > 0 ? page.hops : page.flame);
  canvas = el('div', { class: 'flame', role: 'tree', 'aria-label': 'Flame graph of waiting', onkeydown: moveFocus });
  crumbs = el('p', { class: 'crumbs' });
  said = el('p', { class: 'said', 'aria-live': 'polite' });
  // Those that no box has would only take room.
  const drawn = new Set([...page.hops.class, ...page.flame.class]);
  const legend = el('ul', { class: 'legend' }, ...CLASSES.filter((_, n) => drawn.has(n)).map((known) => el('li', {},
    el('span', { class: `key c-${known.key}`, 'aria-hidden': 'true' }), known.name, el('small', {}, known.means))));
  const quiet = button('without idle and asleep', () => {
    hideQuiet(!hidesQuiet);
    quiet.setAttribute('aria-pressed', String(hidesQuiet));
    zoomTo(weight(zoomed) > 0 ? zoomed : 0);
  }, { 'aria-pressed': String(hidesQuiet) });
  const detail = button('all frames', () => {
    plant(tree === page.hops ? page.flame : page.hops);
    detail.setAttribute('aria-pressed', String(tree === page.flame));
    showQuiet();
    zoomTo(0);
  }, { 'aria-pressed': String(tree === page.flame) });
  const showQuiet = () => {
    quiet.hidden = tree === page.hops;
    quiet.setAttribute('aria-pressed', String(hidesQuiet));
  };
  showQuiet();
  const tools = el('div', { class: 'controls' }, detail, quiet, crumbs);
  // What colours mean comes after what is to be seen.
  byId('flame-body').append(tools, el('div', { class: 'pane' }, canvas), said, legend);
  if (tree.left_out > 0) {
    byId('flame-body').append(el('p', { class: 'rest' },
      `${count(tree.left_out, 'box', 'boxes')} of at most ${time(tree.left_out_below_ns)} each, not drawn`));
  }
  canvas.addEventListener('click', (event) => {
    const box = boxOf(event.target);
    if (box !== null) {
      zoomTo(box);
    }
  });
  canvas.addEventListener('mousemove', (event) => {
    const box = boxOf(event.target);
    if (box === null) {
      hideTip();
    } else {
      showTip(about(box), event);
    }
  });
  canvas.addEventListener('mouseleave', hideTip);
  canvas.addEventListener('focusin', (event) => {
    const box = boxOf(event.target);
    if (box !== null) {
      said.textContent = about(box).join(' · ');
    }
  });
  onSearch(() => {
    drawFlame();
    return isSearching() ? `flame graph ${percent(matched(), weight(0))}` : '';
  });
  onWidth(canvas.parentElement, drawFlame);
}

// Makes the boxes of hops or all frames those that are drawn.
function plant(boxesOf) {
  tree = boxesOf;
  byId('flame-how').textContent = tree === page.hops ? HOW.hops : HOW.frames;
  children = tree.parent.map(() => []);
  for (let box = 1; box < tree.parent.length; box += 1) {
    children[tree.parent[box]].push(box);
  }
  hideQuiet(tree.quiet_ns[0] > 0 && tree.quiet_ns[0] < tree.ns[0]);
}

export function resetFlame() {
  zoomTo(0);
}

function zoomTo(box) {
  zoomed = box;
  focused = box;
  const had = canvas.contains(document.activeElement);
  drawFlame();
  hideTip();
  if (had) {
    boxes.get(box)?.focus();
  }
}

function weight(box) {
  return hidesQuiet ? tree.ns[box] - tree.quiet_ns[box] : tree.ns[box];
}

function hideQuiet(hides) {
  hidesQuiet = hides;
  children.forEach((list) => list.sort((a, b) => weight(b) - weight(a)));
}

function boxOf(target) {
  const element = target.closest('[data-box]');
  return element === null ? null : Number(element.dataset.box);
}

function ancestors(box) {
  const path = [];
  for (let at = box; at !== 0; at = tree.parent[at]) {
    path.unshift(tree.parent[at]);
  }
  return path;
}

export function drawFlame() {
  const width = canvas.clientWidth;
  if (width === 0) {
    return;
  }
  boxes = new Map();
  const above = ancestors(zoomed);
  above.forEach((box, depth) => draw(box, 0, width, depth, true));
  let deepest = above.length;
  const left = [[zoomed, 0, above.length]];
  const rests = [];
  const scale = width / Math.max(1, weight(zoomed));
  while (left.length > 0) {
    const [box, x, depth] = left.pop();
    draw(box, x, weight(box) * scale, depth, false);
    deepest = Math.max(deepest, depth);
    let at = x;
    for (const child of children[box]) {
      const wide = weight(child) * scale;
      // They are in the order of their width.
      if (wide < NARROWEST) {
        break;
      }
      left.push([child, at, depth + 1]);
      at += wide;
    }
    const narrow = children[box].filter((child) => weight(child) > 0 && weight(child) * scale < NARROWEST);
    const rest = narrow.reduce((sum, child) => sum + weight(child), 0) * scale;
    if (rest >= NARROWEST) {
      rests.push(restOf(narrow.length, at, rest, depth + 1));
      deepest = Math.max(deepest, depth + 1);
    }
  }
  canvas.replaceChildren(...boxes.values(), ...rests);
  place(canvas, { height: `${(deepest + 1) * ROW}px` });
  if (!boxes.has(focused)) {
    focused = zoomed;
  }
  boxes.get(focused).tabIndex = 0;
  crumbs.replaceChildren(zoomed === 0
    ? `${time(weight(0))} in all${hidesQuiet ? `, and ${time(tree.quiet_ns[0])} idle or asleep` : ''}; click or Enter zooms in`
    : button('reset zoom (Esc)', resetFlame), zoomed === 0 ? '' : ` ${about(zoomed).slice(0, 2).join(' · ')}`);
}

// Boxes that are too narrow each, as one. Zoom shows them.
function restOf(many, x, width, depth) {
  const words = count(many, 'narrower box', 'narrower boxes');
  return place(el('div', { class: 'box rest', title: words }, width > LABELLED ? words : ''), {
    left: `${x}px`, top: `${depth * ROW}px`, width: `${Math.max(width - 1, 1)}px`,
  });
}

function draw(box, x, width, depth, isAbove) {
  const name = text(tree.text[box]);
  const kind = tree.kind[box];
  const element = el('div', {
    class: `box k${kind} c-${CLASSES[tree.class[box]].key}${isAbove ? ' above' : ''}${isWanted(name) ? ' match' : ''}`,
    role: 'treeitem',
    'aria-level': depth + 1,
    'aria-label': `${name}, ${percent(weight(box), weight(0))}, ${time(weight(box))}`,
    'data-box': box,
    tabindex: -1,
  });
  if (width > LABELLED) {
    const short = tree.short ? text(tree.short[box]) : '';
    element.textContent = short !== '' && name.length * LETTER > width ? short : name;
  }
  place(element, { left: `${x}px`, top: `${depth * ROW}px`, width: `${Math.max(width - 1, 1)}px` });
  boxes.set(box, element);
}

// The time under the boxes that match, each nanosecond once.
function matched() {
  let sum = 0;
  const left = [0];
  while (left.length > 0) {
    const box = left.pop();
    if (isWanted(text(tree.text[box]))) {
      sum += weight(box);
    } else {
      left.push(...children[box]);
    }
  }
  return sum;
}

function about(box) {
  const whole = tree === page.hops ? 'what is drawn' : 'the shown waits';
  const lines = [
    text(tree.text[box]),
    `${time(weight(box))}, ${percent(weight(box), weight(0))} of ${whole}` +
      (zoomed === 0 ? '' : `, ${percent(weight(box), weight(zoomed))} of this view`),
  ];
  const mostly = `mostly ${CLASSES[tree.class[box]].name}`;
  if (tree === page.hops) {
    return [...lines, mostly];
  }
  lines.push(`${KINDS[tree.kind[box]]}; ${mostly}; of ${count(tree.waits[box], 'wait', 'waits')}`);
  const cause = text(tree.cause[box]);
  const endedBy = text(tree.ended_by[box]);
  lines.push(`cause: ${cause || 'several'}; woken by: ${endedBy || 'several'}`);
  return lines;
}

// The tree's keys, as in https://www.w3.org/WAI/ARIA/apg/patterns/treeview/
function moveFocus(event) {
  const box = boxOf(event.target);
  if (box === null) {
    return;
  }
  const siblings = box === 0 ? [0] : children[tree.parent[box]];
  const at = siblings.indexOf(box);
  const to = {
    ArrowUp: tree.parent[box],
    ArrowDown: children[box][0],
    ArrowLeft: siblings[at - 1],
    ArrowRight: siblings[at + 1],
    Home: zoomed,
  }[event.key];
  if (event.key === 'Enter' || event.key === ' ') {
    zoomTo(box);
  } else if (boxes.has(to)) {
    boxes.get(box).tabIndex = -1;
    focused = to;
    boxes.get(to).tabIndex = 0;
    boxes.get(to).focus();
  } else if (!event.key.startsWith('Arrow')) {
    return;
  }
  event.preventDefault();
}
