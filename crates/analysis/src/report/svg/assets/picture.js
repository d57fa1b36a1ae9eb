// A flame graph that is as wide as its window, with zoom, search, and details of the frame under the
// pointer. What is zoomed to and searched for is in the address: `?x=…&y=…&s=…`.
(() => {
  'use strict';

  // Pixels beside the frames, and from a frame's left edge to its name.
  const MARGIN = 10;
  const INDENT = 3;

  const picture = document.currentScript.parentNode;
  const part = (id) => picture.querySelector(`#${id}`);
  const [canvas, details, reset, button, matched] =
    ['frames', 'details', 'unzoom', 'search', 'matched'].map(part);

  // The root comes first, each frame before those below it, siblings from left to right. `x` and
  // `width` are nanoseconds, `y` is pixels, from the top.
  const frames = [...canvas.children].map((group) => {
    const [title, box, label, ...lines] = group.children;
    const text = title.textContent;
    return {
      group, box, text,
      rows: [label, ...lines],
      texts: [text.slice(0, text.lastIndexOf(' (')), ...lines.map((line) => line.getAttribute('fg:text'))]
        .filter((words) => words !== ''),
      short: label.getAttribute('fg:short'),
      isLabel: label.classList.contains('label'),
      x: Number(box.getAttribute('fg:x')),
      width: Number(box.getAttribute('fg:w')),
      y: Number(box.getAttribute('y')),
    };
  });
  const frameOf = new Map(frames.map((frame) => [frame.group, frame]));
  const root = frames[0];
  const characterWidth = measureCharacter();

  let zoomed = root;
  let pattern = null;
  let pixels = Number(canvas.getAttribute('width'));

  // The font is monospaced.
  function measureCharacter() {
    const [label] = root.rows;
    const words = label.textContent;
    label.textContent = 'W';
    const width = label.getComputedTextLength();
    label.textContent = words;
    return width || 7.2;
  }

  function end(frame) {
    return frame.x + frame.width;
  }

  function isAbove(frame) {
    return frame.y < zoomed.y && frame.x <= zoomed.x && end(frame) >= end(zoomed);
  }

  function isInside(frame) {
    return frame.y >= zoomed.y && frame.x >= zoomed.x && frame.x < end(zoomed);
  }

  function draw() {
    let matching = 0;
    let counted = 0;
    for (const frame of frames) {
      const above = isAbove(frame);
      const inside = isInside(frame);
      const matches = inside && pattern !== null && pattern.test(frame.text);
      frame.group.classList.toggle('above', above);
      frame.group.classList.toggle('hidden', !above && !inside);
      frame.group.classList.toggle('match', matches);
      if (above) {
        place(frame, 0, 1);
      } else if (inside) {
        place(frame, (frame.x - zoomed.x) / zoomed.width, frame.width / zoomed.width);
      }
      // What is below a frame that matches is counted with it.
      if (matches && frame.x >= counted) {
        matching += frame.width;
        counted = end(frame);
      }
    }
    reset.classList.toggle('hidden', zoomed === root);
    button.classList.toggle('active', pattern !== null);
    button.textContent = pattern === null ? 'Search' : 'Reset Search';
    const share = (100 * matching) / zoomed.width;
    matched.textContent = pattern === null ? ' ' : `Matched: ${share === 100 ? 100 : share.toFixed(1)}%`;
  }

  // Both are parts of the canvas.
  function place({ box, rows, texts, short, isLabel }, x, width) {
    box.setAttribute('x', percent(x));
    box.setAttribute('width', percent(width));
    const room = width * pixels - INDENT;
    let filled = fillRows(texts, rows.length, room);
    if (short !== null && ofName(filled) !== texts[0]) {
      filled = fillRows([short, ...texts.slice(1)], rows.length, room);
    }
    rows.forEach((row, nth) => {
      const { words, place } = filled[nth] || { words: '', place: -1 };
      row.setAttribute('x', percent(x + INDENT / pixels));
      row.textContent = words;
      row.classList.toggle('label', isLabel && place === 0);
    });
  }

  function ofName(filled) {
    return filled.filter(({ place }) => place === 0).map(({ words }) => words).join(' ');
  }

  // A text that is too long goes on in the next row, between two words, as long as there are more rows than
  // texts.
  function fillRows(texts, count, room) {
    const filled = [];
    let spare = count - texts.length;
    texts.forEach((text, place) => {
      let rest = text;
      while (spare > 0 && !fits(rest, room)) {
        const end = rest.lastIndexOf(' ', Math.floor(room / characterWidth));
        if (end < 1) {
          break;
        }
        filled.push({ words: rest.slice(0, end), place });
        rest = rest.slice(end + 1);
        spare -= 1;
      }
      filled.push({ words: shorten(rest, room), place });
    });
    return filled;
  }

  function fits(text, room) {
    return text.length * characterWidth < room;
  }

  function percent(part) {
    return `${(100 * part).toFixed(4)}%`;
  }

  // A name's beginning says more than its end; a single letter says nothing.
  function shorten(name, room) {
    if (fits(name, room)) {
      return name;
    }
    const characters = Math.floor(room / characterWidth);
    return characters < 4 ? '' : `${name.slice(0, characters - 2)}..`;
  }

  function fitWindow() {
    const width = picture.width.baseVal.value;
    pixels = Math.max(width - 2 * MARGIN, 1);
    canvas.setAttribute('width', pixels);
    button.setAttribute('x', width - MARGIN);
    matched.setAttribute('x', width - MARGIN);
    draw();
  }

  function zoomTo(frame) {
    zoomed = frame;
    draw();
    remember();
  }

  function search(words) {
    try {
      pattern = words ? new RegExp(words) : null;
    } catch (error) {
      matched.textContent = error.message;
      return;
    }
    draw();
    remember();
  }

  function askOrReset() {
    if (pattern !== null) {
      search('');
      return;
    }
    const words = prompt('Frames to search for (a regular expression, ^ext4_ say):', '');
    if (words) {
      search(words);
    }
  }

  function remember() {
    const state = new URLSearchParams(location.search);
    for (const [key, value] of [
      ['x', zoomed === root ? null : zoomed.x],
      ['y', zoomed === root ? null : zoomed.y],
      ['s', pattern && pattern.source],
    ]) {
      if (value === null) {
        state.delete(key);
      } else {
        state.set(key, value);
      }
    }
    const query = state.toString();
    try {
      history.replaceState(null, '', (query ? `?${query}` : location.pathname) + location.hash);
    } catch {
      // A document without an address of its own, in a sandbox say, can't keep its state there.
    }
  }

  function recall() {
    const state = new URLSearchParams(location.search);
    const [x, y] = [state.get('x'), state.get('y')];
    zoomed = frames.find((frame) => String(frame.x) === x && String(frame.y) === y) || root;
    search(state.get('s'));
  }

  function frameAt(target) {
    return frameOf.get(target.closest('#frames > g'));
  }

  picture.addEventListener('click', ({ target }) => {
    const frame = frameAt(target);
    if (frame) {
      zoomTo(frame);
    } else if (target === reset) {
      zoomTo(root);
    } else if (target === button) {
      askOrReset();
    }
  });
  picture.addEventListener('mouseover', ({ target }) => {
    const frame = frameAt(target);
    details.textContent = frame ? `Frame: ${frame.text}` : ' ';
  });
  addEventListener('keydown', (event) => {
    if (event.key === 'F3' || ((event.ctrlKey || event.metaKey) && event.key === 'f')) {
      event.preventDefault();
      askOrReset();
    }
  });
  addEventListener('resize', fitWindow);
  addEventListener('load', () => {
    picture.removeAttribute('width');
    picture.removeAttribute('viewBox');
    fitWindow();
    recall();
  });
})();
