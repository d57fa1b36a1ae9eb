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
    `${count(head.processes, 'process', 'processes')}, ${count(head.threads, 'thread', 'threads')}`,
    `stacks: ${head.stacks}`,
  ];
  if (head.scope === 'target') {
    facts.push('only the target’s own waits were recorded: chains are one hop deep');
  }
  byId('facts').textContent = facts.join(' · ');
  const note = (kind, words) => el('p', { class: `note ${kind}` }, words);
  byId('notes').append(
    note(head.is_lossless ? 'fine' : 'bad', head.loss),
    ...head.warnings.map((warning) => note('bad', warning)),
    ...(head.filter.length > 0 ? [note('filter', `filter: ${head.filter.join('; ')}`)] : []),
  );
  byId('foot').textContent =
    `offwake ${head.offwake}; it used ${time(head.own_cpu_ns)} of CPU time itself, ` +
    `${percent(head.own_cpu_ns, head.duration_ns)} of one CPU` +
    (page.texts_left_out > 0 ? `; ${page.texts_left_out} mentions of names found no room in this file` : '');
}

export function showVerdict() {
  const { worst, head } = page;
  byId('verdict').append(...worst.list.map((entry) => verdict(entry, head.duration_ns)));
  if (worst.list.length === 0) {
    byId('verdict').replaceWith(el('p', { class: 'empty' }, 'No wait to show.'));
  }
  const rest = [];
  if (worst.left_out > 0) {
    rest.push(`and ${worst.left_out} more, ${time(worst.left_out_ns)} together`);
  }
  if (worst.sleeping_ns > 0) {
    rest.push(`sleeping on purpose: ${time(worst.sleeping_ns)}, listed last`);
  }
  if (worst.asleep > 0) {
    const more = worst.asleep - worst.asleep_names.length;
    const names = worst.asleep_names.join(', ') + (more > 0 ? ` and ${more} more` : '');
    rest.push(`asleep all the time: ${worst.asleep} (${names})`);
  }
  byId('verdict-rest').textContent = rest.join('; ');
}

function verdict(entry, window) {
  const bar = el('span', { class: 'share', 'aria-hidden': 'true' }, place(el('i'), {
    width: `${Math.min(100, ((entry.ns - entry.idle_ns) * 100) / window)}%`,
  }));
  return el('li', {},
    el('div', { class: 'figure' }, el('b', {}, percent(entry.ns, window)), el('span', {}, time(entry.ns)), bar),
    el('div', { class: 'sentence' },
      el('p', { class: 'what' }, entry.what),
      el('p', {}, el('span', { class: 'arrow', title: 'ended by' }, '<- '), el('b', {}, entry.ended_by)),
      el('p', {}, el('span', { class: 'arrow', title: 'spent on' }, '= '), spentOn(entry)),
      button('its waits', () => {
        search(entry.thread);
        byId('waits').scrollIntoView();
      }, { class: 'link', 'aria-label': `Show the waits of ${entry.thread}` })));
}

function spentOn(entry) {
  const more = entry.more_parts > 0 ? [`${entry.more_parts} more`] : [];
  return [...entry.spent_on, ...more].join(', ');
}

export function showTotals() {
  const { ledgers } = page;
  const [wall, onCpu, runnable, attributed, external, unattributed, idle] = ledgers.total;
  const classes = ledgers.classes;
  const parts = [
    { key: 'on-cpu', name: 'on-CPU', ns: onCpu, means: 'it ran' },
    { key: 'runnable', name: 'runnable', ns: runnable, means: 'it waited for a CPU itself' },
    ...(classes
      ? CLASSES.map((known, n) => ({ ...known, ns: classes[n] }))
      : [
          { key: 'work', name: 'attributed', ns: attributed, means: 'another thread worked or queued' },
          { ...CLASSES[2], ns: external },
          { ...CLASSES[3], ns: unattributed },
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
