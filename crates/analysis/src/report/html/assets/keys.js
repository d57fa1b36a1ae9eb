// The keys that hold everywhere, and the list of all keys.

import { byId, button, el, hideTip } from './dom.js';
import { focusSearch, isSearching, search } from './search.js';
import { toggleTheme } from './theme.js';
import { resetFlame } from './flame.js';
import { resetTimeline } from './timeline.js';

const KEYS = [
  ['/', 'search names everywhere'],
  ['Esc', 'clear the search, reset the zoom'],
  ['t', 'light or dark'],
  ['?', 'this list'],
  ['Tab', 'from one thing to the next'],
  ['↑ ↓ ← →', 'flame graph: towards the root, away from it, to the sides. Tables: from row to row, open, close'],
  ['Enter', 'flame graph: zoom in. Timeline: zoom to the wait. Graph: only this one’s arrows'],
  ['← → + −', 'timeline: earlier, later, closer, farther'],
  ['↑ ↓', 'timeline: from thread to thread'],
  ['n p', 'timeline: next and previous wait of the thread'],
];

export function listenToKeys() {
  const dialog = byId('keys');
  dialog.append(
    el('h2', { id: 'keys-title' }, 'Keys'),
    el('dl', {}, ...KEYS.flatMap(([key, means]) => [el('dt', {}, el('kbd', {}, key)), el('dd', {}, means)])),
    button('Close', () => dialog.close()));
  byId('help').addEventListener('click', () => dialog.showModal());
  document.addEventListener('keydown', (event) => {
    const isTyping = event.target instanceof HTMLInputElement;
    if (dialog.open || event.ctrlKey || event.metaKey || event.altKey) {
      return;
    }
    if (event.key === 'Escape') {
      hideTip();
      if (isTyping || isSearching()) {
        search('');
        event.target.blur?.();
      } else {
        resetFlame();
        resetTimeline();
      }
    } else if (!isTyping && event.key === '/') {
      focusSearch();
    } else if (!isTyping && event.key === '?') {
      dialog.showModal();
    } else if (!isTyping && event.key === 't') {
      toggleTheme();
    } else {
      return;
    }
    event.preventDefault();
  });
}
