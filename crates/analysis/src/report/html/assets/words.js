// Numbers in words, as the summary on the terminal has them.

export function time(ns) {
  const units = [['s', 1e9], ['ms', 1e6], ['us', 1e3]];
  for (const [unit, scale] of units) {
    if (ns >= scale) {
      const value = ns / scale;
      const digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
      return `${value.toFixed(digits)} ${unit}`;
    }
  }
  return `${Math.round(ns)} ns`;
}

export function percent(part, of) {
  return of > 0 ? `${((part * 100) / of).toFixed(1)}%` : '-';
}

export function count(n, one, many) {
  return n === 1 ? `1 ${one}` : `${n.toLocaleString('en')} ${many}`;
}

// UTC to the millisecond; nothing for a time that no calendar has.
export function utc(unixNs) {
  const date = new Date(unixNs / 1e6);
  return Number.isNaN(date.getTime()) ? '' : date.toISOString().replace('T', ' ').replace('Z', ' UTC');
}
