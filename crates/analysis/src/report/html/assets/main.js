// Draws the page, section by section.

import { byId } from './dom.js';
import { showHead, showTotals, showFindings } from './head.js';
import { showWaits } from './waits.js';
import { showFlame } from './flame.js';
import { showGraph } from './graph.js';
import { showRequests } from './requests.js';
import { showTimeline } from './timeline.js';
import { showLedger } from './ledger.js';
import { listenToKeys } from './keys.js';

for (const show of [showHead, showFindings, showTotals, showWaits, showFlame, showGraph, showRequests, showTimeline, showLedger, listenToKeys]) {
  show();
}
byId('head').dataset.drawn = 'yes';
