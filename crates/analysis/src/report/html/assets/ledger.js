// The ledgers as tables, of which only the rows in sight are elements.

import { byId, button, el, onWidth, place } from './dom.js';
import { count, percent, time } from './words.js';
import { page, text } from './data.js';
import { isSearching, isWanted, onSearch } from './search.js';

const ROW = 27;
const MARGIN = 6;
const COLUMNS = ['wall', 'on-CPU', 'runnable', 'attributed', 'external', 'unattributed', 'idle'];
const BAR = [['on-cpu', 1], ['runnable', 2], ['work', 3], ['external', 4], ['unattributed', 5]];

const tables = page.ledgers;
const open = new Set();
let level = 'processes';
let sorted = { column: -1, down: true };
let rows = [];
let active = 0;
let pane;
let body;
let threadsOf = null;

export function showLedger() {
  onSearch(() => {
    select();
    drawRows();
    return isSearching() ? count(rows.length, 'row of the ledger', 'rows of the ledger') : '';
  });
  draw();
}

function draw() {
  const choose = (to) => button(to, () => {
    level = to;
    active = 0;
    draw();
    [...byId('ledger-body').querySelectorAll('.controls button')].find((one) => one.textContent === to).focus();
  }, { 'aria-pressed': String(level === to) });
  const header = el('div', { class: 'ledger-row header', role: 'row' },
    el('span', { role: 'columnheader' }, level === 'processes' ? 'process, thread' : level.slice(0, -1)),
    ...COLUMNS.map((name, n) => el('span', {
      role: 'columnheader', class: 'number',
      'aria-sort': sorted.column !== n ? 'none' : sorted.down ? 'descending' : 'ascending',
    }, button(name, () => {
      sorted = { column: n, down: sorted.column === n ? !sorted.down : true };
      draw();
      byId('ledger-body').querySelectorAll('.header button')[n].focus();
    }))), el('span', {}));
  body = el('div', { class: 'spacer', role: 'rowgroup' });
  pane = el('div', { class: 'pane rows', tabindex: 0, role: 'treegrid', 'aria-label': 'Ledger', onkeydown: keys, onscroll: drawRows, onfocus: drawRows, onblur: drawRows }, header, body);
  byId('ledger-body').replaceChildren(
    el('div', { class: 'controls', role: 'group', 'aria-label': 'Ledger of' }, choose('processes'), choose('cgroups'), choose('threads')),
    pane, el('p', { class: 'rest' }, leftOut()));
  select();
  drawRows();
  onWidth(pane, drawRows);
}

function leftOut() {
  return ['processes', 'cgroups', 'threads'].filter((name) => tables[name].left_out > 0).map((name) => {
    const { left_out: many, left_out_time: sums } = tables[name];
    return `${many.toLocaleString('en')} more ${name} without a row: wall ${time(sums[0])}, of it on-CPU ${percent(sums[1], sums[0])}, attributed ${percent(sums[3], sums[0])}, idle ${percent(sums[6], sums[0])}`;
  }).join('; ');
}

function threads(process) {
  if (threadsOf === null) {
    threadsOf = new Map();
    for (const row of tables.threads.rows) {
      if (!threadsOf.has(row.process)) {
        threadsOf.set(row.process, []);
      }
      threadsOf.get(row.process).push(row);
    }
  }
  return threadsOf.get(process) ?? [];
}

function order(list) {
  if (sorted.column < 0) {
    return list;
  }
  const by = (row) => row.time[sorted.column];
  return [...list].sort((a, b) => (sorted.down ? by(b) - by(a) : by(a) - by(b)));
}

function select() {
  const found = (row) => !isSearching() || isWanted(text(row.text));
  rows = [];
  if (level !== 'processes') {
    rows = order(tables[level].rows.filter(found)).map((row) => ({ row, depth: 0 }));
  } else {
    for (const row of order(tables.processes.rows)) {
      const inside = isSearching() ? threads(row.process).filter(found) : open.has(row) ? threads(row.process) : [];
      if (found(row) || inside.length > 0) {
        rows.push({ row, depth: 0 });
        order(inside).forEach((thread) => rows.push({ row: thread, depth: 1 }));
      }
    }
  }
  active = Math.min(active, Math.max(0, rows.length - 1));
  place(body, { height: `${rows.length * ROW}px` });
  place(pane, { height: `${Math.min((rows.length + 1) * ROW + 20, 460)}px` });
  pane.setAttribute('aria-rowcount', rows.length + 1);
}

function drawRows() {
  const first = Math.max(0, Math.floor(pane.scrollTop / ROW) - MARGIN);
  const last = Math.min(rows.length, Math.ceil((pane.scrollTop + pane.clientHeight) / ROW) + MARGIN);
  const drawn = [];
  for (let n = first; n < last; n += 1) {
    drawn.push(place(rowOf(n), { top: `${n * ROW}px` }));
  }
  body.replaceChildren(...drawn);
  pane.setAttribute('aria-activedescendant', `ledger-row-${active}`);
}

function isParent({ row, depth }) {
  return level === 'processes' && depth === 0 && row.threads > 1;
}

function rowOf(n) {
  const { row, depth } = rows[n];
  const [wall, ...parts] = row.time;
  const isOpen = open.has(row) || (isSearching() && isParent(rows[n]));
  const mark = isParent(rows[n]) ? (isOpen ? '▾ ' : '▸ ') : depth > 0 ? '  ' : '';
  const many = row.threads > 1 ? ` (${row.threads} threads)` : '';
  return el('div', {
    class: `ledger-row depth${depth}${n === active && pane === document.activeElement ? ' active' : ''}`,
    role: 'row', id: `ledger-row-${n}`, 'aria-rowindex': n + 2, 'aria-level': depth + 1,
    'aria-expanded': isParent(rows[n]) ? String(isOpen) : null,
    onclick: () => {
      active = n;
      toggle(n);
    },
  },
  el('span', { role: 'rowheader', class: 'name', title: text(row.text) }, `${mark}${text(row.text)}${many}`),
  el('span', { role: 'gridcell', class: 'number' }, time(wall)),
  ...parts.map((ns) => el('span', { role: 'gridcell', class: 'number' }, percent(ns, wall))),
  el('span', { class: 'stack thin', 'aria-hidden': 'true' }, ...BAR.map(([key, column]) =>
    place(el('i', { class: `c-${key}` }), { width: wall > 0 ? `${(row.time[column] * 100) / wall}%` : '0' }))));
}

function toggle(n) {
  if (isParent(rows[n]) && !isSearching()) {
    const { row } = rows[n];
    if (!open.delete(row)) {
      open.add(row);
    }
    select();
  }
  drawRows();
}

function keys(event) {
  if (event.target !== pane) {
    return;
  }
  const page = Math.max(1, Math.floor(pane.clientHeight / ROW) - 2);
  const to = {
    ArrowDown: active + 1, ArrowUp: active - 1, PageDown: active + page, PageUp: active - page,
    Home: 0, End: rows.length - 1,
  }[event.key];
  const isOpen = rows.length > 0 && open.has(rows[active].row);
  if (to !== undefined) {
    active = Math.min(Math.max(0, to), rows.length - 1);
    const top = active * ROW;
    if (top < pane.scrollTop) {
      pane.scrollTop = top;
    } else if (top + 2 * ROW > pane.scrollTop + pane.clientHeight) {
      pane.scrollTop = top + 2 * ROW + 12 - pane.clientHeight;
    }
    drawRows();
  } else if (event.key === 'Enter' || event.key === ' ' || (event.key === 'ArrowRight' && !isOpen) || (event.key === 'ArrowLeft' && isOpen)) {
    if (rows.length > 0) {
      toggle(active);
    }
  } else {
    return;
  }
  event.preventDefault();
}
