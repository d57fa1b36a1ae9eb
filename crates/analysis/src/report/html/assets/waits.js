// The table of the worst waits. A row opens into the chain of each of its parts.

import { byId, button, el, place } from './dom.js';
import { count, percent, time } from './words.js';
import { CLASSES, IDLE, frames, page, text } from './data.js';
import { isSearching, isWanted, onSearch } from './search.js';

const STEP = 15;
const COLUMNS = [
  { name: 'blocked', by: (wait) => wait.ns, number: true },
  { name: 'not idle', by: (wait) => wait.ns - wait.quiet_ns, number: true },
  { name: 'waits', by: (wait) => wait.count, number: true },
  { name: 'longest', by: (wait) => wait.longest_ns, number: true },
  { name: 'thread', by: (wait) => text(wait.thread) },
  { name: 'waits on', by: (wait) => on(wait) },
  { name: 'woken by', by: (wait) => text(wait.ended_by) },
];

let sorted = { column: 1, down: true };
let shown = STEP;
let matching = [];
const open = new Set();

function on(wait) {
  const what = [text(wait.cause)];
  const name = text(wait.on);
  if (name) {
    what[0] = name.startsWith(what[0]) ? name : `${what[0]}: ${name}`;
  }
  if (wait.label !== null) {
    what.push(`in ${text(wait.label)}`);
  }
  if (wait.ranges !== undefined) {
    what.push(`within ${text(wait.ranges)}`);
  }
  return what.join(', ');
}

const names = new Map();

// All that a search looks at, put together once for each wait.
function searched(wait) {
  let known = names.get(wait);
  if (known === undefined) {
    const parts = wait.parts.flatMap((part) => [
      text(part.leaf), text(part.label), text(part.holder), ...frames(part.stack),
      ...part.chain.flatMap(([thread, label, stack]) => [text(thread), text(label), ...frames(stack)]),
    ]);
    known = [text(wait.thread), on(wait), text(wait.ended_by), ...frames(wait.stack), ...parts].join('\n');
    names.set(wait, known);
  }
  return known;
}

export function showWaits() {
  onSearch(() => {
    shown = STEP;
    select();
    draw();
    return count(matching.length, 'entry of waits', 'entries of waits');
  });
  select();
  draw();
}

function select() {
  const { by, number } = COLUMNS[sorted.column];
  matching = page.waits.list.filter((wait) => !isSearching() || isWanted(searched(wait)));
  const order = number ? (a, b) => by(a) - by(b) : (a, b) => by(a).localeCompare(by(b), 'en');
  matching.sort((a, b) => (sorted.down ? order(b, a) : order(a, b)));
}

function draw() {
  const header = el('tr', {}, el('td', {}), ...COLUMNS.map((column, n) => el('th', {
    scope: 'col',
    class: column.number ? 'number' : null,
    'aria-sort': sorted.column !== n ? 'none' : sorted.down ? 'descending' : 'ascending',
  }, button(column.name, () => sortBy(n)))));
  const body = el('tbody', {}, ...matching.slice(0, shown).flatMap(rows));
  const table = el('table', { class: 'waits' },
    el('caption', { class: 'hidden' }, 'Worst waits'), el('thead', {}, header), body);
  body.addEventListener('keydown', moveFocus);
  const rest = el('p', { class: 'rest' });
  if (matching.length > shown) {
    rest.append(button(`show ${Math.min(STEP, matching.length - shown)} more of ${matching.length - shown}`, () => {
      shown += STEP;
      draw();
    }));
  }
  const { left_out: leftOut, left_out_ns: leftOutNs } = page.waits;
  if (leftOut > 0) {
    rest.append(` ${count(leftOut, 'wait', 'waits')} of less than these, ${time(leftOutNs)} together, not in this file`);
  }
  const empty = matching.length === 0 ? [el('p', { class: 'empty' }, 'No wait to show.')] : [];
  const legend = el('ul', { class: 'legend' }, ...CLASSES.map((known) => el('li', {},
    el('span', { class: `key c-${known.key}`, 'aria-hidden': 'true' }), known.name, el('small', {}, known.means))));
  byId('waits-body').replaceChildren(legend, el('div', { class: 'wide' }, table), ...empty, rest);
}

function sortBy(column) {
  sorted = { column, down: sorted.column === column ? !sorted.down : Boolean(COLUMNS[column].number) };
  select();
  draw();
  byId('waits-body').querySelectorAll('th button')[column].focus();
}

function rows(wait) {
  const isOpen = open.has(wait);
  const toggle = button(isOpen ? '▾' : '▸', () => {
    const again = toggleRow(wait, row);
    again.querySelector('button').focus();
  }, { class: 'toggle', 'aria-expanded': String(isOpen), 'aria-label': `Chain of ${text(wait.thread)} on ${on(wait)}` });
  const row = el('tr', { class: 'row' },
    el('td', {}, toggle),
    el('td', { class: 'number' }, time(wait.ns), shareBar(wait)),
    el('td', { class: 'number' }, time(wait.ns - wait.quiet_ns)),
    el('td', { class: 'number' }, wait.count.toLocaleString('en')),
    el('td', { class: 'number' }, time(wait.longest_ns)),
    el('td', {}, text(wait.thread)),
    el('td', {}, on(wait)),
    el('td', {}, text(wait.ended_by)));
  return isOpen ? [row, chainRow(wait)] : [row];
}

function toggleRow(wait, row) {
  if (open.delete(wait)) {
    row.nextElementSibling.remove();
  } else {
    open.add(wait);
  }
  const fresh = rows(wait);
  row.replaceWith(...fresh);
  return fresh[0];
}

// What the wait's time divides into, as a line of colours.
function shareBar(wait) {
  const sums = CLASSES.map(() => 0);
  for (const part of wait.parts) {
    sums[part.class] += part.ns;
  }
  return el('span', { class: 'stack thin', 'aria-hidden': 'true' }, ...sums.map((ns, n) =>
    place(el('i', { class: `c-${CLASSES[n].key}` }), { width: `${(ns * 100) / wait.ns}%` })));
}

function chainRow(wait) {
  const facts = [
    `process ${wait.process}`,
    wait.syscall === null ? 'no syscall' : `in ${text(wait.syscall)}`,
    `state ${wait.state}`,
    wait.timeout_ns === null ? null : `timeout ${time(wait.timeout_ns)}`,
    wait.retries > 0 ? count(wait.retries, 'retry', 'retries') : null,
    wait.ended_in === null ? null : `woken in ${text(wait.ended_in)}`,
  ];
  const parts = wait.parts.map((part) => partOf(wait, part));
  if (wait.parts_left_out > 0) {
    parts.push(el('p', { class: 'rest' }, `${count(wait.parts_left_out, 'smaller part', 'smaller parts')}, ${time(wait.parts_left_out_ns)}, not in this file`));
  }
  return el('tr', { class: 'chain' }, el('td', { colspan: COLUMNS.length + 1 },
    el('p', { class: 'rest' }, facts.filter(Boolean).join(' · ')),
    hop('waiting thread', text(wait.thread), wait.label, wait.stack),
    ...parts));
}

function partOf(wait, part) {
  const known = CLASSES[part.class];
  const last = part.chain.length - 1;
  const hops = part.chain.map(([thread, label, stack], n) => (n === last
    ? hop(`hop ${n + 1}`, text(thread), part.label ?? label, part.stack)
    : hop(`hop ${n + 1}`, text(thread), label, stack)));
  const held = part.holder === null ? [] : [el('p', { class: 'hop' }, el('span', { class: 'nth' }, 'CPU held by'), text(part.holder))];
  return el('div', { class: 'part' },
    el('p', { class: 'leaf' },
      el('span', { class: `key c-${known.key}`, 'aria-hidden': 'true' }),
      el('b', {}, percent(part.ns, wait.ns)), ` ${time(part.ns)} ${text(part.leaf)}${part.class === IDLE ? ', idle' : ''}`),
    ...hops, ...held);
}

function hop(nth, thread, label, stack) {
  const names = frames(stack);
  const title = [el('span', { class: 'nth' }, nth), el('b', {}, thread)];
  if (label !== null) {
    title.push(' in ', el('code', {}, text(label)));
  }
  if (names.length === 0) {
    return el('p', { class: 'hop' }, ...title, el('span', { class: 'rest' }, ' (no stack)'));
  }
  return el('details', { class: 'hop' },
    el('summary', {}, ...title, el('span', { class: 'rest' }, ` (${count(names.length, 'frame', 'frames')})`)),
    el('ol', { class: 'frames', reversed: true }, ...names.slice().reverse().map((name) => el('li', {}, name))));
}

// Arrow keys go from row to row, and open and close them.
function moveFocus(event) {
  const toggle = event.target.closest('button.toggle');
  if (!toggle) {
    return;
  }
  const toggles = [...byId('waits-body').querySelectorAll('button.toggle')];
  const at = toggles.indexOf(toggle);
  const isOpen = toggle.getAttribute('aria-expanded') === 'true';
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: toggles.length - 1 }[event.key];
  if (to !== undefined) {
    toggles[to]?.focus();
  } else if ((event.key === 'ArrowRight' && !isOpen) || (event.key === 'ArrowLeft' && isOpen)) {
    toggle.click();
  } else {
    return;
  }
  event.preventDefault();
}
