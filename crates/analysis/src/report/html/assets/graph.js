// Who waits for whom: laid out by dagre, drawn here.

import { byId, button, el, hideTip, onWidth, showTip, svg } from './dom.js';
import { count, percent, time } from './words.js';
import { page, text } from './data.js';
import { isWanted, onSearch } from './search.js';

const LETTER = 7.2;
const HEIGHT = 40;
const THINNEST = 1;
const THICKEST = 9;
const LISTED = 12;
const LIGHTEST = 200;
// Drawn smaller than this, names can't be read: only the heaviest arrows are drawn then, but not fewer than these.
const SMALLEST = 0.7;
const FEWEST = 5;

let level = page.graphs.processes.edges.length > 0 ? 'processes' : 'threads';
let hidesQuiet = true;
let chosen = null;
let drawsAll = false;
let listsAll = false;
let listIsOpen = false;

export function showGraph() {
  onSearch(() => {
    drawGraph();
    return '';
  });
  onWidth(byId('graph-body'), drawGraph);
}

function weight(edge) {
  return hidesQuiet ? edge.ns - edge.quiet_ns : edge.ns;
}

function drawGraph() {
  const graph = page.graphs[level];
  const all = graph.edges.filter((edge) => weight(edge) > 0);
  const most = Math.max(...all.map(weight));
  all.sort((a, b) => weight(b) - weight(a));
  const edges = all.filter((edge) => weight(edge) * LIGHTEST >= most);
  const isPressed = (is) => ({ 'aria-pressed': String(is) });
  const choose = (to) => {
    level = to;
    chosen = null;
    drawGraph();
  };
  const tools = el('div', { class: 'controls', role: 'group', 'aria-label': 'Graph' },
    button('processes', () => choose('processes'), isPressed(level === 'processes')),
    button('threads', () => choose('threads'), isPressed(level === 'threads')),
    button('without idle and asleep', () => {
      hidesQuiet = !hidesQuiet;
      drawGraph();
    }, isPressed(hidesQuiet)),
    button('all arrows', () => {
      drawsAll = !drawsAll;
      drawGraph();
    }, { ...isPressed(drawsAll), hidden: true }),
    el('span', { class: 'rest' }, 'Arrows lead to who was waited for; dashed: it had the CPU.'));
  const had = byId('graph-body').contains(document.activeElement) ? document.activeElement.textContent : null;
  const picture = edges.length === 0
    ? el('p', { class: 'empty' }, 'No wait that ended here was one for another thread. What has not ended is among the findings.')
    : el('div', { class: 'pane graph' });
  byId('graph-body').replaceChildren(tools, picture, list(graph, all, all.length - edges.length));
  if (edges.length > 0) {
    const room = roomOf(picture);
    const drawn = drawsAll ? edges : edges.slice(0, howManyFit(graph, edges, room));
    picture.append(pictureOf(graph, drawn, most, room));
    if (drawn.length < edges.length) {
      tools.lastElementChild.append(` The ${drawn.length} heaviest of ${edges.length}.`);
    }
    tools.querySelector('[hidden]').hidden = !drawsAll && drawn.length === edges.length;
  }
  if (had !== null) {
    [...byId('graph-body').querySelectorAll('button')].find((b) => b.textContent === had)?.focus();
  }
}

function words(graph, edge) {
  const link = edge.link === 'waits_for' ? 'waits for' : 'waits for a CPU held by';
  return `${text(graph.nodes[edge.from].text)} ${link} ${text(graph.nodes[edge.to].text)}`;
}

// The room of a pane that is not filled yet: beside the findings it has a height, else only a largest one.
function roomOf(pane) {
  const { maxHeight, paddingLeft } = getComputedStyle(pane);
  const padding = 2 * parseFloat(paddingLeft);
  const most = parseFloat(maxHeight);
  return { width: pane.clientWidth - padding, height: (Number.isNaN(most) ? pane.clientHeight : most) - padding };
}

// By how much a layout has to be drawn smaller to be seen as a whole.
function scaleOf(laid, room) {
  const { width, height } = laid.graph();
  return Math.min(1, room.width / width, room.height / height);
}

// How many of the heaviest arrows can be seen as a whole.
function howManyFit(graph, edges, room) {
  let many = edges.length;
  while (many > FEWEST && scaleOf(bestLayout(graph, edges.slice(0, many), room), room) < SMALLEST) {
    many = Math.max(FEWEST, Math.floor(many * 0.75));
  }
  return many;
}

// From the left to the right, or from the top down: whichever can be drawn larger.
function bestLayout(graph, edges, room) {
  const [across, down] = [layOut(graph, edges, 'LR'), layOut(graph, edges, 'TB')];
  return scaleOf(down, room) > scaleOf(across, room) ? down : across;
}

function pictureOf(graph, edges, most, room) {
  const laid = bestLayout(graph, edges, room);
  const { width, height } = laid.graph();
  const scale = Math.max(SMALLEST, scaleOf(laid, room));
  const arrow = svg('marker', { id: 'arrow', viewBox: '0 0 8 8', refX: 7, refY: 4, markerWidth: 9, markerHeight: 9, markerUnits: 'userSpaceOnUse', orient: 'auto-start-reverse' },
    svg('path', { d: 'M0 0L8 4L0 8z' }));
  const lines = laid.edges().map((key) => {
    const edge = edges[Number(key.name)];
    return line(graph, edge, laid.edge(key), THINNEST + (THICKEST - THINNEST) * Math.sqrt(weight(edge) / most));
  });
  const boxes = laid.nodes().map((key) => box(graph, edges, Number(key), laid.node(key)));
  return svg('svg', { width: Math.floor(width * scale), height: Math.floor(height * scale), viewBox: `0 0 ${Math.ceil(width)} ${Math.ceil(height)}`, role: 'group', 'aria-label': 'Who waits for whom' },
    svg('defs', {}, arrow), ...lines, ...boxes);
}

function layOut(graph, edges, rankdir) {
  const laid = new dagre.graphlib.Graph({ multigraph: true });
  laid.setGraph({ rankdir, nodesep: 18, ranksep: rankdir === 'LR' ? 70 : 26, marginx: 10, marginy: 10 });
  for (const n of new Set(edges.flatMap((edge) => [edge.from, edge.to]))) {
    const longest = Math.max(text(graph.nodes[n].text).length, under(graph.nodes[n]).length * 0.85);
    laid.setNode(String(n), { width: Math.min(280, longest * LETTER + 22), height: HEIGHT });
  }
  edges.forEach((edge, n) => {
    laid.setEdge(String(edge.from), String(edge.to), { width: 56, height: 16, labelpos: 'c' }, String(n));
  });
  dagre.layout(laid);
  return laid;
}

function line(graph, edge, route, width) {
  const [first, ...rest] = route.points;
  const path = `M${round(first.x)} ${round(first.y)}` + rest.map((point) => `L${round(point.x)} ${round(point.y)}`).join('');
  const isFar = chosen !== null && edge.from !== chosen && edge.to !== chosen;
  const isIdle = edge.quiet_ns * 2 > edge.ns;
  const lines = () => [words(graph, edge), `${time(edge.ns)} blocked${edge.quiet_ns > 0 ? `, ${time(edge.quiet_ns)} of it idle or asleep` : ''}`];
  return svg('g', { class: `edge ${edge.link}${isIdle ? ' idle' : ''}${isFar ? ' far' : ''}`, onmousemove: (event) => showTip(lines(), event), onmouseleave: hideTip },
    svg('path', { d: path, 'stroke-width': width.toFixed(1), 'marker-end': 'url(#arrow)' }),
    svg('text', { x: round(route.x), y: round(route.y) - 4, 'text-anchor': 'middle' }, time(weight(edge))));
}

function round(n) {
  return Math.round(n * 10) / 10;
}

// What is in small letters below a name.
function under(node) {
  const words = [];
  if (node.blamed_ns > 0) {
    words.push(`blamed ${time(node.blamed_ns)}`);
  }
  if (node.within_ns > 0) {
    words.push(`within ${time(node.within_ns)}`);
  }
  return words.join(', ');
}

function box(graph, edges, n, at) {
  const node = graph.nodes[n];
  const name = text(node.text);
  const about = () => [
    name,
    ...(node.blamed_ns > 0 ? [`${time(node.blamed_ns)} of others’ waits were spent on its work or its waiting for a CPU`] : []),
    ...(node.within_ns > 0 ? [`${time(node.within_ns)} its own threads waited for each other`] : []),
  ];
  const choose = () => {
    chosen = chosen === n ? null : n;
    drawGraph();
    byId('graph-body').querySelector(`[data-node="${n}"]`)?.focus();
  };
  const outgoing = edges.filter((edge) => edge.from === n).length;
  const incoming = edges.filter((edge) => edge.to === n).length;
  const longest = Math.floor((at.width - 16) / LETTER);
  return svg('g', {
    class: `node${node.outside === null ? '' : ` outside c-${node.outside}`}${chosen === n ? ' chosen' : ''}${isWanted(name) ? ' match' : ''}`,
    transform: `translate(${round(at.x - at.width / 2)} ${round(at.y - at.height / 2)})`,
    tabindex: 0, role: 'button', 'data-node': n, 'aria-pressed': String(chosen === n),
    'aria-label': `${name}, waits for ${outgoing}, waited for by ${incoming}. ${under(node)}`,
    onclick: choose,
    onkeydown: (event) => {
      if (event.key === 'Enter' || event.key === ' ') {
        choose();
        event.preventDefault();
      }
    },
    onmousemove: (event) => showTip(about(), event),
    onmouseleave: hideTip,
  },
  svg('rect', { width: round(at.width), height: at.height, rx: 5 }),
  svg('text', { x: 9, y: under(node) ? 17 : 25 }, name.length > longest ? `${name.slice(0, longest - 1)}…` : name),
  svg('text', { x: 9, y: 32, class: 'under' }, under(node)));
}

function list(graph, edges, light) {
  const related = edges.filter((edge) => chosen === null || edge.from === chosen || edge.to === chosen);
  const { ns: [all], quiet_ns: [quiet] } = page.flame;
  const rows = related.slice(0, listsAll ? related.length : LISTED).map((edge) => el('li', {},
    el('b', {}, percent(weight(edge), hidesQuiet ? all - quiet : all)), ` ${time(weight(edge))} `, words(graph, edge), edge.quiet_ns * 2 > edge.ns ? ' (mostly idle or asleep)' : ''));
  const rest = [];
  if (!listsAll && related.length > LISTED) {
    rest.push(button(`list ${related.length - LISTED} more`, () => {
      listsAll = true;
      drawGraph();
    }));
  }
  if (light > 0) {
    rest.push(` ${count(light, 'arrow', 'arrows')} of less than a ${LIGHTEST}th of the heaviest: listed, not drawn;`);
  }
  if (graph.left_out > 0) {
    rest.push(` ${count(graph.left_out, 'lighter arrow', 'lighter arrows')}, ${time(graph.left_out_ns)} together, not in this file`);
  }
  return el('details', { class: 'list', open: listIsOpen, ontoggle: (event) => { listIsOpen = event.target.open; } },
    el('summary', {}, `As a list: ${count(related.length, 'arrow', 'arrows')}`),
    el('ol', { class: 'edges' }, ...rows),
    el('p', { class: 'rest' }, 'Percentages are of the shown blocked time.', ...rest));
}
