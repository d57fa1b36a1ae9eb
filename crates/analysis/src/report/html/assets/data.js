// What was found, from the one element that holds it.

import { byId } from './dom.js';

export const page = JSON.parse(byId('data').textContent);

export const CLASSES = [
  { key: 'work', name: 'work', means: 'another thread worked' },
  { key: 'queue', name: 'cpu_queue', means: 'another thread waited for a CPU' },
  { key: 'throttled', name: 'throttled', means: 'a CPU quota was used up' },
  { key: 'timer', name: 'slept', means: 'it, or a thread that it waited for, slept until a timer, or waited until a timeout' },
  { key: 'disk', name: 'disk', means: 'it, or a thread that it waited for, waited for a disk' },
  { key: 'network', name: 'network', means: 'a packet from another machine was waited for' },
  { key: 'device', name: 'device', means: 'another device was waited for' },
  { key: 'held-back', name: 'held back', means: 'a process was stopped, threads are deadlocked, or TCP held data back' },
  { key: 'unattributed', name: 'unattributed', means: 'not known, with the reason' },
  { key: 'idle', name: 'idle', means: 'nothing to do, by design' },
  { key: 'asleep', name: 'asleep', means: 'never woke in the window' },
];

export const IDLE = CLASSES.findIndex((known) => known.key === 'idle');

// A text by its number; nothing for null.
export function text(id) {
  return id === null || id === undefined ? '' : page.texts[id];
}

// A stack's frames, root first.
export function frames(id) {
  return page.stacks[id].map(text);
}
