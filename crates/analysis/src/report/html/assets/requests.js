// How long requests took, and what the slow ones have that the fast ones do not.

import { byId, button, el, hideTip, onWidth, place, showTip, svg } from './dom.js';
import { count, percent, time } from './words.js';
import { CLASSES, page } from './data.js';
import { STATES } from './lanes.js';

const HEIGHT = 130;
const BELOW = 18;
const ROW = 18;
const COLUMNS = ['mean', 'p50', 'p90', 'p99', 'p99.9', 'max'];
const STATE_KEYS = ['on-cpu', 'runnable', 'blocked', 'lost'];

export function showRequests() {
  const { classes, classes_left_out: leftOut, not_told_apart: notToldApart } = page.requests;
  if (classes.length === 0 && notToldApart.length === 0) {
    byId('requests').remove();
    document.querySelector('a[href="#requests"]').remove();
    return;
  }
  const rest = [];
  if (leftOut > 0) {
    rest.push(`${count(leftOut, 'more kind', 'more kinds')} of requests: -o x.requests.json has them.`);
  }
  byId('requests-body').append(
    ...classes.map((entry, n) => classOf(entry, n === 0)),
    el('p', { class: 'rest' }, rest.join(' ')),
    ...notToldApart.map((text) => el('p', { class: classes.length === 0 ? '' : 'rest' }, text)));
}

function classOf(entry, isOpen) {
  const [, p50, , p99] = entry.latency;
  const unfinished = entry.unfinished > 0 ? `, ${entry.unfinished.toLocaleString('en')} unfinished` : '';
  const profile = el('div', {});
  const picture = el('div', {});
  const bands = el('div', { class: 'controls', role: 'group', 'aria-label': 'Band' });
  let chosen = entry.bands.length - 1;
  const draw = () => {
    bands.replaceChildren('what they were spent on, of those between percentiles: ', ...entry.bands.map((band, n) => button(
      band.name, () => choose(n), { 'aria-pressed': String(n === chosen) })));
    picture.replaceChildren(histogram(entry, chosen, picture.clientWidth, choose));
    profile.replaceChildren(...profileOf(entry.bands[chosen]));
  };
  const choose = (n) => {
    const hadFocus = bands.contains(document.activeElement);
    chosen = n;
    draw();
    if (hadFocus) {
      bands.querySelectorAll('button')[n].focus();
    }
  };
  onWidth(picture, draw);
  return el('details', { class: 'request-class', open: isOpen },
    el('summary', {}, el('b', {}, `${entry.server} (${entry.serving_end})`),
      ` ${count(entry.count, 'request', 'requests')}${unfinished}: p50 ${time(p50)}, p99 ${time(p99)}`),
    el('div', { class: 'request-body' },
      el('div', {}, ...slowOf(entry), table(entry), ...notes(entry)),
      el('div', {}, picture, el('p', { class: 'rest' }, 'How many requests took how long; both axes are logarithmic. Dark: those below.'), bands, profile)),
    ...slowestOf(entry));
}

// What the slow ones have more, and what a percentile would be without the first of it.
function slowOf({ slow }) {
  if (slow === null) {
    return [el('p', { class: 'rest' }, 'Too few to compare slow ones with fast ones.')];
  }
  const more = slow.mean_ns - slow.fast_mean_ns;
  const without = slow.bound === null ? [] : [el('p', {}, `Without the first of these, ${slow.bound}. `,
    el('span', { class: 'rest' }, 'What hides behind it may show up once it is gone.'))];
  return [
    el('p', {}, `The slow ones (p${slow.from_percentile} and above: ${slow.count.toLocaleString('en')}, ${time(slow.mean_ns)} on average) have `,
      el('b', {}, `${time(more)} more`), ' than the fast half:'),
    bars(slow.excess, more),
    ...without,
  ];
}

// One line each: how much, a bar of that length, and what it was.
function bars(parts, whole) {
  return el('ol', { class: 'bars' }, ...parts.map((part) => bar(part, whole)));
}

function bar(part, whole) {
  const length = Math.min(100, (part.ns * 100) / Math.max(1, whole));
  const heldUp = part.held_up === null ? [] : [el('small', {}, `held up: ${part.held_up}`)];
  const meanwhile = part.meanwhile.map(([text, ns]) => el('small', {}, `${time(ns)} ${text}`));
  return el('li', {},
    el('span', { class: 'number' }, time(part.ns)),
    el('span', { class: 'share', 'aria-hidden': 'true' },
      place(el('i', { class: `c-${CLASSES[part.class].key}` }), { width: `${length}%` })),
    el('span', {}, part.text, ...heldUp, meanwhile.length > 0 ? ', while' : '', ...meanwhile));
}

function profileOf(band) {
  const other = band.other_ns > 0 ? [el('p', { class: 'rest' }, `${time(band.other_ns)} more was spent on less.`)] : [];
  return [
    el('p', {}, el('b', {}, band.name), `: ${count(band.count, 'request', 'requests')} of ${time(band.from_ns)} to ${time(band.to_ns)}, ${time(band.mean_ns)} on average:`),
    bars(band.parts, band.mean_ns), ...other,
  ];
}

function table(entry) {
  const row = (name, times) => el('tr', {}, el('th', { scope: 'row' }, name), ...times.map((ns) => el('td', { class: 'number' }, time(ns))));
  return el('div', { class: 'wide' }, el('table', { class: 'latencies' },
    el('thead', {}, el('tr', {}, el('td', {}), ...COLUMNS.map((name) => el('th', { scope: 'col', class: 'number' }, name)))),
    el('tbody', {}, row('latency', entry.latency), row('service', entry.service))));
}

function notes(entry) {
  const words = [];
  if (!entry.roles_known) {
    words.push(`Nothing tells who asks and who serves (${entry.serving_end}): these may be waits for the next request.`);
  }
  if (entry.start_unseen > 0) {
    words.push(`${count(entry.start_unseen, 'request', 'requests')} came while the server was awake: they count from when the client fell asleep, or from the answer before.`);
  }
  if (entry.seen_by_server > 0) {
    words.push(`${count(entry.seen_by_server, 'is', 'are')} as the server saw them.`);
  }
  return words.length === 0 ? [] : [el('p', { class: 'rest' }, words.join(' '))];
}

function bandOf(entry, from) {
  const found = entry.bands.findIndex((band) => from <= band.to_ns);
  return found < 0 ? entry.bands.length - 1 : found;
}

// Both axes are logarithmic, so that a few slow ones can be seen beside many fast ones.
function histogram(entry, chosen, width, choose) {
  const buckets = entry.histogram;
  const log = (ns) => Math.log10(Math.max(1, ns));
  const [low, high] = [log(buckets[0][0]), log(buckets[buckets.length - 1][1])];
  const x = (ns) => ((log(ns) - low) / Math.max(0.01, high - low)) * (width - 2) + 1;
  const most = Math.log(1 + Math.max(...buckets.map((bucket) => bucket[2])));
  const drawn = buckets.map(([from, to, many]) => {
    const height = Math.max(2, (Math.log(1 + many) / most) * (HEIGHT - BELOW - 16));
    const band = bandOf(entry, from);
    return svg('rect', {
      class: band === chosen ? 'bucket chosen' : 'bucket',
      x: round(x(from)), y: round(HEIGHT - BELOW - height), width: Math.max(1, round(x(to) - x(from) - 1)), height: round(height),
      onclick: () => choose(band),
      onmousemove: (event) => showTip([count(many, 'request', 'requests'), `${time(from)} to ${time(to)}, ${entry.bands[band].name}`], event),
      onmouseleave: hideTip,
    });
  });
  const ticks = [];
  for (let power = Math.ceil(low); power <= high; power += 1) {
    const at = round(x(10 ** power));
    ticks.push(svg('text', { x: Math.min(width - 24, Math.max(14, at)), y: HEIGHT - 4, 'text-anchor': 'middle' }, time(10 ** power)));
    ticks.push(svg('line', { x1: at, x2: at, y1: HEIGHT - BELOW, y2: HEIGHT - BELOW + 4 }));
  }
  let free = -Infinity;
  const marks = [1, 2, 3].flatMap((column) => {
    const at = round(x(entry.latency[column]));
    const label = at > free ? [svg('text', { x: Math.min(width - 26, at + 3), y: 10 }, COLUMNS[column])] : [];
    free = label.length > 0 ? at + 30 : free;
    return [svg('line', { class: 'mark', x1: at, x2: at, y1: 2, y2: HEIGHT - BELOW }), ...label];
  });
  return svg('svg', { class: 'histogram', width, height: HEIGHT, role: 'img', 'aria-label': `How many requests took how long, of ${entry.server}` },
    svg('line', { x1: 0, x2: width, y1: HEIGHT - BELOW, y2: HEIGHT - BELOW }), ...drawn, ...ticks, ...marks);
}

function round(n) {
  return Math.round(n * 10) / 10;
}

// One after the other: what the threads did meanwhile that had to do with it.
function slowestOf(entry) {
  if (entry.slowest.length === 0) {
    return [];
  }
  const legend = el('ul', { class: 'legend' }, ...STATES.map((name, n) => el('li', {}, el('i', { class: `key c-${STATE_KEYS[n]}` }), name)));
  return [
    el('h3', {}, entry.slowest.length === 1 ? 'The slowest' : `The ${entry.slowest.length} slowest`), legend,
    ...entry.slowest.map(slowest),
  ];
}

function slowest(request) {
  const rows = request.threads.map((thread) => {
    const lane = el('div', {});
    onWidth(lane, () => lane.replaceChildren(laneOf(thread, request.ns, lane.clientWidth)));
    return el('div', { class: 'request-lane' },
      el('span', { title: `${thread.role}: ${thread.name}` }, el('small', {}, `${thread.role}: `), thread.name), lane);
  });
  const parts = request.parts.slice(0, 3).map((part) => `${time(part.ns)} ${part.text}${part.meanwhile.slice(0, 1).map(([text]) => `, while ${text}`).join('')}`);
  return el('div', { class: 'request' },
    el('p', {}, el('b', {}, time(request.ns)), `, ${time(request.at_ns)} after the window opened: `, parts.join('; ')), ...rows);
}

function laneOf(thread, length, width) {
  const x = (ns) => (ns / Math.max(1, length)) * width;
  return svg('svg', { width, height: ROW, role: 'img', 'aria-label': `${thread.name}: ${spent(thread, length)}` },
    ...thread.states.map(([from, to, state]) => svg('rect', {
      class: `state c-${STATE_KEYS[state]}`, x: round(x(from)), y: 2, width: Math.max(0.5, round(x(to) - x(from))), height: ROW - 4,
      onmousemove: (event) => showTip([thread.name, `${STATES[state]} for ${time(to - from)}, ${time(from)} after the request began`], event),
      onmouseleave: hideTip,
    })));
}

// How a thread's time divides, in words.
function spent(thread, length) {
  const sums = STATES.map(() => 0);
  for (const [from, to, state] of thread.states) {
    sums[state] += to - from;
  }
  return STATES.map((name, n) => [name, sums[n]]).filter(([, ns]) => ns > 0).map(([name, ns]) => `${name} ${percent(ns, length)}`).join(', ');
}
