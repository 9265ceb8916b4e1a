// How the pages draw states of jobs: each has a sign of its own shape, so that
// nothing rests on colour alone.

import {h, s} from './dom.js';

const looks = {
  // state: [tone, words, drawing in a square of 16, filled]
  running: ['run', 'running', 'M4.5 2.5L13 8L4.5 13.5Z', true],
  waiting_approval: ['ask', 'waiting for approval', 'M8 1.5L14.5 8L8 14.5L1.5 8ZM8 5V8.7M8 10.6V11.4', false],
  checkpointed: ['run', 'checkpointed', 'M5 3V13M11 3V13', false],
  pending: ['idle', 'pending', 'M2.5 8a5.5 5.5 0 1 0 11 0a5.5 5.5 0 1 0 -11 0', false],
  completed: ['good', 'completed', 'M2.5 8.5L6.5 12.5L13.5 4', false],
  failed: ['bad', 'failed', 'M3.5 3.5L12.5 12.5M12.5 3.5L3.5 12.5', false],
  cancelled: ['off', 'cancelled', 'M2.5 8a5.5 5.5 0 1 0 11 0a5.5 5.5 0 1 0 -11 0M4.2 11.8L11.8 4.2', false],
};

// states lists the states of a run in the order in which a person looks for them.
export const states = ['completed', 'running', 'waiting_approval', 'checkpointed', 'pending', 'failed', 'cancelled'];

const look = (state) => looks[state] || looks.pending;

// toneOf returns the tone of a state: good, bad, run, ask, idle, off.
export const toneOf = (state) => look(state)[0];

// stateWord returns what a person calls a state.
export const stateWord = (state) => (looks[state] ? looks[state][1] : String(state ?? '').replaceAll('_', ' '));

// stateOfUpdate returns the state that an update of the stream tells: an attempt that has
// ended is no end of its job before the queue says so.
export const stateOfUpdate = (u) => (u.entry_state === 'dispatched' ? 'running' : u.state || 'pending');

// drawing returns a state's sign.
export function drawing(state) {
  const [tone, , d, filled] = look(state);
  return s(
    'svg',
    {class: ['state-sign', 'tone-' + tone, filled && 'is-filled'], width: 16, height: 16, viewBox: '0 0 16 16', 'aria-hidden': 'true'},
    s('path', {d}),
  );
}

// tally returns the states that have something, as pairs of a state and how many.
export function tally(counts) {
  const known = new Set(states);
  return [...states, ...Object.keys(counts || {}).filter((state) => !known.has(state))]
    .map((state) => [state, counts?.[state] || 0])
    .filter(([, n]) => n > 0);
}

// progress returns a bar with a piece for each state, and the same in words.
export function progress(counts, all, testid) {
  const pieces = tally(counts);
  return h(
    'div',
    {class: 'progress', 'data-testid': testid},
    h(
      'div',
      {class: 'stack', 'aria-hidden': 'true'},
      pieces.map(([state, n]) => h('span', {class: ['stack-piece', 'tone-' + toneOf(state)], style: {'--grow': n}})),
    ),
    h(
      'div',
      {class: 'progress-words small'},
      pieces.length
        ? pieces.map(([state, n]) => h('span', {class: 'nowrap'}, drawing(state), ` ${n} ${stateWord(state)}`))
        : `0 of ${all || 0}`,
    ),
  );
}
