// Light or dark: as the system has it, until somebody presses the button. Nothing is stored.

import { byId } from './dom.js';

const redraws = [];
const dark = matchMedia('(prefers-color-scheme: dark)');

export function onTheme(redraw) {
  redraws.push(redraw);
}

export function toggleTheme() {
  const root = document.documentElement;
  const isDark = root.dataset.theme ? root.dataset.theme === 'dark' : dark.matches;
  root.dataset.theme = isDark ? 'light' : 'dark';
  redraws.forEach((redraw) => redraw());
}

// A colour of the style sheet, for what is drawn on a canvas.
export function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

byId('theme').addEventListener('click', toggleTheme);
dark.addEventListener('change', () => redraws.forEach((redraw) => redraw()));
