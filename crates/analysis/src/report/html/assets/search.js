// One search for everything: sections ask whether a name is looked for, and say what they found.

import { byId } from './dom.js';

const field = byId('search');
const found = byId('found');
const sections = [];
let wanted = '';

export function isSearching() {
  return wanted !== '';
}

export function isWanted(name) {
  return wanted !== '' && name.toLowerCase().includes(wanted);
}

// `update` draws the section anew and returns in words what was found there.
export function onSearch(update) {
  sections.push(update);
}

export function search(words) {
  field.value = words;
  wanted = words.trim().toLowerCase();
  const results = sections.map((update) => update());
  found.textContent = isSearching() ? results.filter(Boolean).join(' · ') : '';
}

export function focusSearch() {
  field.focus();
  field.select();
}

// Whoever types fast need not wait for every letter.
let pending = 0;
field.addEventListener('input', () => {
  cancelAnimationFrame(pending);
  pending = requestAnimationFrame(() => search(field.value));
});
