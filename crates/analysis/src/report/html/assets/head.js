// What was recorded, what it comes to in words, and the whole target's time as one bar.

import { byId, button, el, place } from './dom.js';
import { count, percent, time, utc } from './words.js';
import { CLASSES, page } from './data.js';
import { search } from './search.js';

export function showHead() {
  const { head } = page;
  document.title = `offwake: ${head.target} on ${head.host}`;
  byId('target').textContent = head.target;
  const facts = [
    `host ${head.host}`,
    `Linux ${head.kernel}`,
    head.start_unix_ns === null ? 'at an unknown time' : utc(head.start_unix_ns),
    `for ${time(head.duration_ns)} (closed by: ${head.closed_by})`,
    count(head.processes, 'process', 'processes') +
      (head.passing_processes > 0 && head.processes > 1 ? ` (${head.passing_processes.toLocaleString('en')} not throughout)` : '') +
      `, ${count(head.threads, 'thread', 'threads')}`,
    `stacks: ${head.stacks}`,
  ];
  if (head.scope === 'target') {
    facts.push('only the target’s own waits were recorded: chains are one hop deep');
  }
  byId('facts').textContent = facts.join(' · ');
  const note = (kind, words) => el('p', { class: `note ${kind}` }, words);
  // A loss that could not change the answer is with the details, as in the other outputs.
  const isRelevant = head.loss_relevance === 'could_change_the_answer';
  byId('warnings').append(...head.warnings.map((warning) => note('bad', warning)));
  byId('notes').append(
    ...(isRelevant ? [note('bad', head.loss)] : []),
    ...(head.limit === null ? [] : [note('filter', head.limit)]),
    ...(head.filter.length > 0 ? [note('filter', `filter: ${head.filter.join('; ')}`)] : []),
  );
  byId('foot').textContent =
    `offwake ${head.offwake}; it used ${time(head.own_cpu_ns)} of CPU time itself, ` +
    `${percent(head.own_cpu_ns, head.duration_ns)} of one CPU` +
    (isRelevant ? '' : `; ${head.loss}`) +
    (page.texts_left_out > 0 ? `; ${page.texts_left_out} mentions of names found no room in this file` : '');
}

// Findings that are shown at once; a click shows the others. Where they are beside a graph, the flame graph is to begin
// within this part of the window, but two are always there.
const FIRST_FINDINGS = 3;
const LOWEST = 0.78;

function isBesideGraph() {
  return getComputedStyle(byId('graph')).position === 'relative';
}

export function showFindings() {
  const { findings } = page;
  const items = findings.list.map(finding);
  let shown = Math.min(FIRST_FINDINGS, items.length);
  if (findings.idle) {
    byId('verdict').before(el('p', { class: 'idle' }, findings.idle));
  }
  byId('verdict').append(...items);
  items.forEach((item, n) => { item.hidden = n >= shown; });
  // The graphs are on the first screen as well.
  while (shown > 2 && isBesideGraph() && byId('flame').getBoundingClientRect().top + scrollY > innerHeight * LOWEST) {
    shown -= 1;
    items[shown].hidden = true;
  }
  const others = items.slice(shown);
  if (others.length > 0) {
    const more = button(`${count(others.length, 'more finding', 'more findings')}`, () => {
      others.forEach((item) => { item.hidden = false; });
      more.remove();
    });
    byId('verdict').after(more);
  }
  if (findings.list.length === 0) {
    byId('verdict').replaceWith(el('p', { class: 'empty' }, 'Nothing holds it up.'));
  }
  byId('verdict-rest').textContent = findings.rest;
}

// Each finding has the lines that the terminal has, the others come at a click.
function finding(entry, n) {
  const bar = el('span', { class: 'share', 'aria-hidden': 'true' }, place(el('i'), {
    width: `${Math.min(100, entry.share * 100)}%`,
  }));
  const lines = entry.lines.map((line) => {
    const parts = [line.text];
    if (line.depth === 0 && entry.leading) {
      parts.unshift(el('b', { class: 'leading' }, entry.leading), ' ');
    } else if (line.depth === 0 && line.detail) {
      parts.push(el('small', {}, ` ${line.detail}`));
    }
    if (line.mark) {
      parts.push(line.is_cause ? el('strong', { class: 'cause' }, ` ${line.mark}`) : el('small', {}, ` ${line.mark}`));
    }
    return place(el('p', { class: line.depth === 0 ? 'what' : line.is_cause ? 'hop end' : 'hop' }, ...parts), {
      'margin-left': `${line.depth * 1.4}rem`,
    });
  });
  const folded = lines.filter((_, at) => entry.lines[at].is_folded);
  folded.forEach((line) => { line.hidden = true; });
  const links = [button('its waits', () => {
    search(entry.search);
    byId('waits').scrollIntoView();
  }, { class: 'link', 'aria-label': `Show the waits of ${entry.search}` })];
  lines[0].append(' ', ...links);
  if (folded.length > 0) {
    const unfold = button(`… ${count(folded.length, 'more line', 'more lines')}`, () => {
      folded.forEach((line) => { line.hidden = false; });
      unfold.remove();
    }, { class: 'link' });
    lines.splice(lines.indexOf(folded[0]), 0, place(el('p', { class: 'hop' }, unfold), { 'margin-left': folded[0].style.marginLeft }));
  }
  return el('li', { class: entry.kind },
    el('div', { class: 'figure' }, el('b', {}, el('small', {}, `${n + 1} `), sharePercent(entry.share)), el('span', {}, entry.threads > 1 && entry.ns > page.head.duration_ns ? `${time(entry.ns)} over ${entry.threads} threads` : time(entry.ns)), bar),
    el('div', { class: 'sentence' }, ...lines));
}

function sharePercent(share) {
  return share < 0.0095 ? `${(share * 100).toFixed(1)}%` : `${Math.round(share * 100)}%`;
}

// Classes that are shown only where they have time, since most targets lack most of them.
const OUTSIDE = new Set(['throttled', 'timer', 'disk', 'network', 'device', 'held-back']);

export function showTotals() {
  const { ledgers } = page;
  const [wall, onCpu, runnable, attributed, external, unattributed, idle] = ledgers.total;
  const classes = ledgers.classes;
  const parts = [
    { key: 'on-cpu', name: 'on-CPU', ns: onCpu, means: 'it ran' },
    { key: 'runnable', name: 'runnable', ns: runnable, means: 'it waited for a CPU itself' },
    ...(classes
      ? CLASSES.map((known, n) => ({ ...known, ns: classes[n] })).filter((part) => part.ns > 0 || !OUTSIDE.has(part.key))
      : [
          { key: 'work', name: 'attributed', ns: attributed, means: 'another thread worked or waited for a CPU' },
          { key: 'external', name: 'external', ns: external, means: 'sleep until a timer, disk, network, device or CPU quota' },
          { key: 'unattributed', name: 'unattributed', ns: unattributed, means: 'not known, with the reason' },
        ]),
  ];
  const bar = el('div', { class: 'stack', role: 'img', 'aria-label': parts.map((part) => `${part.name} ${percent(part.ns, wall)}`).join(', ') });
  for (const part of parts.filter((part) => part.ns > 0)) {
    bar.append(place(el('i', { class: `c-${part.key}`, title: `${part.name}: ${time(part.ns)}, ${percent(part.ns, wall)}` }), {
      width: `${(part.ns * 100) / wall}%`,
    }));
  }
  const cards = parts.map((part) => el('li', {},
    el('span', { class: `key c-${part.key}`, 'aria-hidden': 'true' }),
    el('b', {}, percent(part.ns, wall)), ' ', part.name,
    el('small', {}, `${time(part.ns)}: ${part.means}`)));
  const names = ['attributed', 'external', 'unattributed'];
  const reasons = ledgers.parts.flatMap((sums, n) =>
    Object.entries(sums).map(([name, ns]) => ({ group: names[n], name, ns })));
  reasons.sort((a, b) => b.ns - a.ns);
  const blocked = attributed + external + unattributed;
  byId('totals').append(
    el('h3', {}, `All threads’ time added up: ${time(wall)}`),
    bar,
    el('ul', { class: 'cards' }, ...cards),
    el('p', { class: 'rest' },
      `blocked ${time(blocked)}, idle by design ${percent(idle, blocked)} of it: `,
      reasons.map((part) => `${part.name} ${percent(part.ns, blocked)}`).join(', ')));
}
