// The timeline's lanes, unpacked: intervals or bins → what each column of pixels divides into.

import { page, text } from './data.js';

export const STATES = ['on-CPU', 'runnable', 'blocked', 'lost'];

const DIGITS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';
const VALUES = new Map([...DIGITS].map((digit, value) => [digit, value]));

export const lanes = page.timeline.lanes.map((lane) => ({
  ...lane,
  name: text(lane.text),
  waits: [],
  ...(lane.exact ? exact(lane) : binned(lane)),
}));

export const waits = page.timeline.waits.map(
  ([lane, from, to, cause, on, label, endedBy, endedFrom, parts, rest]) => {
    const wait = { lane, from, to, cause, on, label, endedBy, endedFrom, parts, rest };
    lanes[lane].waits.push(wait);
    return wait;
  });

function exact(lane) {
  const starts = [];
  const states = [];
  let at = lane.from_ns;
  for (let n = 0; n < lane.exact.length; n += 2) {
    at += lane.exact[n];
    starts.push(at);
    states.push(lane.exact[n + 1]);
  }
  return { starts, states, shares: null };
}

function binned(lane) {
  const shares = new Float32Array(lane.binned.length);
  for (let n = 0; n < shares.length; n += 1) {
    shares[n] = VALUES.get(lane.binned[n]) / (DIGITS.length - 1);
  }
  const length = page.timeline.length_ns / Math.max(1, shares.length / STATES.length);
  return { starts: null, states: null, shares, length };
}

// How many of a sorted list are at or before `at`.
export function begun(list, at, key = (entry) => entry) {
  let [low, high] = [0, list.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (key(list[middle]) <= at) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// Four numbers for each column, of which a whole one adds up to about 1.
export function columnsOf(lane, view, width) {
  const columns = new Float32Array(width * STATES.length);
  const scale = width / (view.to - view.from);
  const add = (from, to, state, share) => {
    const left = Math.max(0, (from - view.from) * scale);
    const right = Math.min(width, (to - view.from) * scale);
    for (let x = Math.floor(left); x < right; x += 1) {
      columns[x * STATES.length + state] += share * (Math.min(right, x + 1) - Math.max(left, x));
    }
  };
  if (lane.starts !== null) {
    const first = Math.max(0, begun(lane.starts, view.from) - 1);
    for (let n = first; n < lane.starts.length && lane.starts[n] < view.to; n += 1) {
      add(lane.starts[n], lane.starts[n + 1] ?? lane.until_ns, lane.states[n], 1);
    }
  } else {
    const first = Math.max(0, Math.floor(view.from / lane.length));
    for (let n = first; n * lane.length < view.to && n * STATES.length < lane.shares.length; n += 1) {
      for (let state = 0; state < STATES.length; state += 1) {
        const share = lane.shares[n * STATES.length + state];
        if (share > 0) {
          add(n * lane.length, (n + 1) * lane.length, state, share);
        }
      }
    }
  }
  return columns;
}

// What a thread was doing, in words.
export function stateAt(lane, at) {
  if (at < lane.from_ns || at >= lane.until_ns) {
    return 'not there';
  }
  if (lane.starts !== null) {
    return STATES[lane.states[begun(lane.starts, at) - 1]] ?? 'not there';
  }
  const bin = Math.floor(at / lane.length) * STATES.length;
  const parts = STATES.map((name, n) => [name, lane.shares[bin + n] ?? 0]).filter(([, share]) => share > 0);
  return parts.map(([name, share]) => `${name} ${Math.round(share * 100)}%`).join(', ') || 'not there';
}

// The longest waits that are in the file: the one at a moment, if it is among them.
export function waitAt(lane, at) {
  const wait = lane.waits[begun(lane.waits, at, (one) => one.from) - 1];
  return wait !== undefined && at < wait.to ? wait : null;
}
