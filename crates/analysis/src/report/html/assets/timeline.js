// The lanes on a canvas, of which only what is in sight is drawn.

import { byId, button, el, hideTip, onWidth, place, showTip } from './dom.js';
import { count, percent, time } from './words.js';
import { CLASSES, page, text } from './data.js';
import { isSearching, isWanted, onSearch } from './search.js';
import { color, onTheme } from './theme.js';
import { STATES, begun, columnsOf, lanes, stateAt, waitAt, waits } from './lanes.js';

const LANE = 24;
const AXIS = 22;
const STATE_COLORS = ['on-cpu', 'runnable', 'blocked', 'lost'];
const PIXELS_AN_ARROW = 12;
const SHORTEST_VIEW = 100;

const whole = { from: 0, to: Math.max(1, page.timeline.length_ns) };
let view = { ...whole };
let lane = 0;
let wait = null;
let pane;
let canvas;
let details;
let colors;

export function showTimeline() {
  if (lanes.length === 0) {
    byId('timeline-body').append(el('p', { class: 'empty' }, 'No thread to draw.'));
    return;
  }
  const legend = el('ul', { class: 'legend' },
    ...STATES.map((name, n) => el('li', {}, el('span', { class: `key c-${STATE_COLORS[n]}`, 'aria-hidden': 'true' }), name)),
    el('li', {}, 'line below a wait: what it was spent on'),
    el('li', {}, 'arrows: from who woke it; zoom in to see all'));
  const tools = el('div', { class: 'controls', role: 'group', 'aria-label': 'Timeline' },
    button('−', () => zoom(2), { 'aria-label': 'zoom out' }),
    button('+', () => zoom(0.5), { 'aria-label': 'zoom in' }),
    button('◂', () => pan(-0.25), { 'aria-label': 'earlier' }),
    button('▸', () => pan(0.25), { 'aria-label': 'later' }),
    button('whole window', resetTimeline),
    button('longest wait', showLongest),
    el('span', { class: 'rest' }, 'drag, Ctrl+wheel; keys: ← → + − ↑ ↓ n p Enter Esc'));
  canvas = el('canvas', {});
  pane = el('div', { class: 'pane lanes', tabindex: 0, role: 'application', 'aria-label': 'Timeline of threads', 'aria-describedby': 'wait-details' },
    el('div', { class: 'sticky' }, canvas), el('div', { class: 'spacer' }));
  place(pane.lastChild, { height: `${lanes.length * LANE}px` });
  place(pane, { height: `${Math.min(lanes.length * LANE + AXIS + 2, 520)}px` });
  details = el('div', { class: 'details', id: 'wait-details', 'aria-live': 'polite' }, 'Click a wait, or press n, to see who woke the thread.');
  byId('timeline-body').append(legend, tools, pane, details, el('p', { class: 'rest' }, leftOut()));
  pane.addEventListener('scroll', draw);
  pane.addEventListener('keydown', keys);
  pane.addEventListener('wheel', wheel, { passive: false });
  dragging();
  onTheme(() => {
    colors = null;
    draw();
  });
  onSearch(() => {
    draw();
    const found = lanes.filter((one) => isWanted(one.name)).length;
    return found > 0 ? count(found, 'lane', 'lanes') : '';
  });
  onWidth(pane, draw);
}

function leftOut() {
  const { threads_left_out: threads, blocked_left_out_ns: blocked, waits_left_out: others } = page.timeline;
  const words = [];
  if (threads > 0) {
    words.push(`${count(threads, 'more thread', 'more threads')}, ${time(blocked)} blocked, not drawn`);
  }
  if (others > 0) {
    words.push(`${count(others, 'shorter wait', 'shorter waits')} of the drawn threads without details`);
  }
  const coarse = lanes.find((one) => one.shares !== null);
  if (coarse) {
    const many = lanes.filter((one) => one.shares !== null).length;
    words.push(`${count(many, 'thread', 'threads')} drawn in steps of ${time(coarse.length)}: zoom shows no more of them than that`);
  }
  return words.join('; ');
}

export function resetTimeline() {
  view = { ...whole };
  draw();
}

function labelWidth() {
  return Math.min(190, Math.max(90, pane.clientWidth * 0.2));
}

function xOf(at) {
  const left = labelWidth();
  return left + ((at - view.from) * (pane.clientWidth - left)) / (view.to - view.from);
}

function atOf(x) {
  const left = labelWidth();
  return view.from + ((x - left) * (view.to - view.from)) / (pane.clientWidth - left);
}

function draw() {
  const [width, height] = [pane.clientWidth, pane.clientHeight];
  if (width === 0) {
    return;
  }
  const ratio = devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  place(canvas, { width: `${width}px`, height: `${height}px` });
  const pen = canvas.getContext('2d');
  pen.scale(ratio, ratio);
  colors ??= {
    states: STATE_COLORS.map(color), classes: CLASSES.map((known) => color(known.key)),
    ink: color('ink'), soft: color('soft'), panel: color('panel'), line: color('line'), match: color('match'), accent: color('accent'),
  };
  pen.fillStyle = colors.panel;
  pen.fillRect(0, 0, width, height);
  pen.font = '12px system-ui, sans-serif';
  pen.textBaseline = 'middle';
  axis(pen, width, height);
  const hatch = hatchOf(pen);
  const first = Math.max(0, Math.floor((pane.scrollTop) / LANE));
  const last = Math.min(lanes.length, Math.ceil((pane.scrollTop + height - AXIS) / LANE));
  pen.save();
  pen.beginPath();
  pen.rect(0, AXIS, width, height - AXIS);
  pen.clip();
  for (let n = first; n < last; n += 1) {
    drawLane(pen, n, width, hatch);
  }
  drawArrows(pen, first, last);
  pen.restore();
}

function top(n) {
  return AXIS + n * LANE - pane.scrollTop;
}

function hatchOf(pen) {
  const tile = el('canvas', { width: 6, height: 6 });
  const tilePen = tile.getContext('2d');
  tilePen.fillStyle = colors.panel;
  tilePen.fillRect(0, 0, 6, 6);
  tilePen.strokeStyle = colors.states[3];
  tilePen.lineWidth = 1.5;
  for (const shift of [-6, 0, 6]) {
    tilePen.moveTo(shift, 6);
    tilePen.lineTo(shift + 6, 0);
  }
  tilePen.stroke();
  return pen.createPattern(tile, 'repeat');
}

function axis(pen, width, height) {
  const span = view.to - view.from;
  const rough = span / Math.max(2, (width - labelWidth()) / 110);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
  pen.fillStyle = colors.soft;
  pen.strokeStyle = colors.line;
  pen.lineWidth = 1;
  for (let at = Math.ceil(view.from / step) * step; at <= view.to; at += step) {
    const x = Math.round(xOf(at)) + 0.5;
    pen.beginPath();
    pen.moveTo(x, AXIS - 4);
    pen.lineTo(x, height);
    pen.stroke();
    pen.fillText(at === 0 ? '0' : tick(at, step), x + 3, AXIS / 2);
  }
}

// As many digits as tell one tick from the next.
function tick(at, step) {
  const [unit, scale] = [['s', 1e9], ['ms', 1e6], ['us', 1e3], ['ns', 1]].find(([, size]) => view.to >= size);
  const digits = Math.max(0, -Math.floor(Math.log10(step / scale) + 1e-9));
  return `${(at / scale).toFixed(digits)} ${unit}`;
}

function drawLane(pen, n, width, hatch) {
  const left = Math.ceil(labelWidth());
  const across = Math.max(1, Math.floor(width - left));
  const [y, height] = [top(n) + 3, LANE - 8];
  const shown = lanes[n];
  if (n === lane) {
    pen.fillStyle = colors.line;
    pen.fillRect(0, top(n), width, LANE);
  }
  const columns = columnsOf(shown, view, across);
  const fill = (state) => {
    pen.fillStyle = state === 3 ? hatch : colors.states[state];
  };
  let run = null;
  const flush = (until) => {
    if (run !== null) {
      fill(run.state);
      pen.fillRect(left + run.from, y, until - run.from, height);
      run = null;
    }
  };
  for (let x = 0; x < across; x += 1) {
    const shares = columns.subarray(x * STATES.length, (x + 1) * STATES.length);
    const most = shares.indexOf(Math.max(...shares));
    if (shares[most] > 0.995) {
      if (run === null || run.state !== most) {
        flush(x);
        run = { state: most, from: x };
      }
      continue;
    }
    flush(x);
    let base = y + height;
    for (let state = 0; state < STATES.length; state += 1) {
      if (shares[state] > 0) {
        const tall = Math.max(1, Math.min(1, shares[state]) * height);
        fill(state);
        pen.fillRect(left + x, Math.max(y, base - tall), 1, Math.min(tall, base - y));
        base -= tall;
      }
    }
  }
  flush(across);
  spent(pen, shown, left, y + height);
  pen.fillStyle = isSearching() && isWanted(shown.name) ? colors.match : colors.ink;
  pen.fillText(fitted(pen, shown.name, left - 10), 6, top(n) + LANE / 2);
}

function fitted(pen, name, width) {
  if (pen.measureText(name).width <= width) {
    return name;
  }
  let length = name.length;
  while (length > 1 && pen.measureText(`${name.slice(0, length)}…`).width > width) {
    length -= 1;
  }
  return `${name.slice(0, length)}…`;
}

function inSight(shown) {
  const end = begun(shown.waits, view.to, (one) => one.from);
  return shown.waits.slice(0, end).filter((one) => one.to > view.from);
}

// Below each wait that has details: what it was spent on, by share and not by time.
function spent(pen, shown, left, y) {
  for (const one of inSight(shown)) {
    const from = Math.max(left, xOf(one.from));
    const to = Math.min(pane.clientWidth, xOf(one.to));
    if (to - from < 1) {
      continue;
    }
    let x = from;
    for (const [kind, , ns] of one.parts) {
      const wide = ((to - from) * ns) / (one.to - one.from);
      pen.fillStyle = colors.classes[kind];
      pen.fillRect(x, y, wide, 3);
      x += wide;
    }
    if (one === wait) {
      pen.strokeStyle = colors.accent;
      pen.lineWidth = 2;
      pen.strokeRect(from, y - (LANE - 8) - 1, to - from, LANE - 3);
    }
  }
}

function drawArrows(pen, first, last) {
  const shown = lanes.slice(first, last).flatMap(inSight).filter((one) => one.endedFrom !== null && one.to <= view.to);
  const room = pane.clientWidth / PIXELS_AN_ARROW;
  const ofLane = shown.filter((one) => one.lane === lane);
  const all = [shown, ofLane].find((list) => list.length <= room) ?? shown.filter((one) => one === wait);
  for (const one of all) {
    const isChosen = one === wait;
    pen.strokeStyle = isChosen ? colors.accent : colors.ink;
    pen.fillStyle = pen.strokeStyle;
    pen.lineWidth = isChosen ? 2 : 1;
    pen.globalAlpha = isChosen || one.lane === lane ? 1 : 0.45;
    const x = xOf(one.to);
    const [from, to] = [top(one.endedFrom) + LANE / 2, top(one.lane) + LANE / 2];
    const head = from < to ? -5 : 5;
    pen.beginPath();
    pen.moveTo(x, from);
    pen.lineTo(x, to);
    pen.stroke();
    pen.beginPath();
    pen.moveTo(x, to);
    pen.lineTo(x - 3.5, to + head);
    pen.lineTo(x + 3.5, to + head);
    pen.fill();
  }
  pen.globalAlpha = 1;
}

function show(one) {
  wait = one;
  lane = one.lane;
  const all = one.to - one.from;
  const about = [text(one.cause), text(one.on), text(one.label) && `in ${text(one.label)}`].filter(Boolean);
  const parts = one.parts.map(([kind, words, ns]) => el('li', {},
    el('span', { class: `key c-${CLASSES[kind].key}`, 'aria-hidden': 'true' }),
    el('b', {}, percent(ns, all)), ` ${time(ns)} ${text(words)}`));
  if (one.rest > 0) {
    parts.push(el('li', {}, el('b', {}, percent(one.rest, all)), ` ${time(one.rest)} smaller parts`));
  }
  details.replaceChildren(
    el('p', {}, el('b', {}, lanes[one.lane].name), ` waited ${time(all)}: `, about.join(', '),
      el('span', { class: 'rest' }, ` (${time(one.from)} to ${time(one.to)} after the window opened)`)),
    el('p', {}, el('span', { class: 'arrow' }, '<- '), el('b', {}, text(one.endedBy))),
    el('ul', { class: 'parts' }, ...parts));
  inView(one.lane);
  draw();
}

function inView(n) {
  if (n * LANE < pane.scrollTop) {
    pane.scrollTop = n * LANE;
  } else if ((n + 1) * LANE > pane.scrollTop + pane.clientHeight - AXIS) {
    pane.scrollTop = (n + 1) * LANE - pane.clientHeight + AXIS;
  }
}

function showLongest() {
  const longest = waits.reduce((best, one) => (best === null || one.to - one.from > best.to - best.from ? one : best), null);
  if (longest !== null) {
    show(longest);
  }
}

function lookAt(from, to) {
  const length = Math.min(Math.max(to - from, Math.min(SHORTEST_VIEW, whole.to)), whole.to);
  const start = Math.min(Math.max(0, from), whole.to - length);
  view = { from: start, to: start + length };
  draw();
}

function zoom(by, at = (view.from + view.to) / 2) {
  lookAt(at - (at - view.from) * by, at + (view.to - at) * by);
}

function pan(by) {
  const step = (view.to - view.from) * by;
  lookAt(view.from + step, view.to + step);
}

function step(by) {
  const list = lanes[lane].waits;
  const at = wait === null || wait.lane !== lane ? (by > 0 ? -1 : list.length) : list.indexOf(wait);
  const next = list[at + by];
  if (next !== undefined) {
    show(next);
    if (next.from < view.from || next.to > view.to) {
      const middle = (next.from + next.to) / 2;
      const half = Math.max((view.to - view.from) / 2, (next.to - next.from) * 0.6);
      lookAt(middle - half, middle + half);
    }
  }
}

function chooseLane(n) {
  lane = Math.min(Math.max(0, n), lanes.length - 1);
  wait = null;
  const one = lanes[lane];
  details.textContent = `${one.name}, process ${one.process}: ${count(one.waits.length, 'wait', 'waits')} with details; n and p go through them`;
  inView(lane);
  draw();
}

function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) {
    return;
  }
  const doing = {
    ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2),
    ArrowUp: () => chooseLane(lane - 1), ArrowDown: () => chooseLane(lane + 1),
    '+': () => zoom(0.5), '=': () => zoom(0.5), '-': () => zoom(2),
    n: () => step(1), p: () => step(-1), Home: resetTimeline,
    Enter: () => wait && lookAt(wait.from - (wait.to - wait.from) * 0.1, wait.to + (wait.to - wait.from) * 0.1),
  }[event.key];
  if (doing) {
    doing();
    event.preventDefault();
  }
}

function wheel(event) {
  if (event.ctrlKey) {
    zoom(event.deltaY > 0 ? 1.25 : 0.8, atOf(event.offsetX));
    event.preventDefault();
  } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
    pan(event.deltaX / pane.clientWidth);
    event.preventDefault();
  }
}

function laneOf(event) {
  const n = Math.floor((event.clientY - canvas.getBoundingClientRect().top - AXIS + pane.scrollTop) / LANE);
  return n >= 0 && n < lanes.length ? n : null;
}

function timeOf(event) {
  return atOf(event.clientX - canvas.getBoundingClientRect().left);
}

function dragging() {
  let from = null;
  canvas.addEventListener('pointerdown', (event) => {
    from = { x: event.clientX, view, moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener('pointermove', (event) => {
    if (from !== null) {
      const by = event.clientX - from.x;
      from.moved ||= Math.abs(by) > 3;
      if (from.moved) {
        const step = (by * (from.view.to - from.view.from)) / (pane.clientWidth - labelWidth());
        lookAt(from.view.from - step, from.view.to - step);
      }
      return;
    }
    hover(event);
  });
  canvas.addEventListener('pointerup', (event) => {
    if (from !== null && !from.moved) {
      choose(event);
    }
    from = null;
  });
  canvas.addEventListener('pointerleave', hideTip);
  canvas.addEventListener('dblclick', (event) => zoom(0.4, timeOf(event)));
}

function hover(event) {
  const n = laneOf(event);
  const at = timeOf(event);
  if (n === null || at < view.from) {
    hideTip();
    return;
  }
  const one = waitAt(lanes[n], at);
  showTip([
    lanes[n].name,
    one === null ? stateAt(lanes[n], at) : `blocked ${time(one.to - one.from)}: ${[text(one.cause), text(one.on)].filter(Boolean).join(', ')}`,
    one === null ? `${time(at)} after the window opened` : `<- ${text(one.endedBy)}`,
  ], event);
}

function choose(event) {
  const n = laneOf(event);
  if (n === null) {
    return;
  }
  const one = waitAt(lanes[n], timeOf(event));
  if (one === null) {
    chooseLane(n);
  } else {
    show(one);
  }
}
