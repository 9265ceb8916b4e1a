import assert from 'node:assert/strict';
import {test} from 'node:test';

import {timeLabel} from '../assets/chart.js';
import {stateOfStage} from '../assets/pages/pipelines.js';
import {stateWord, states, tally, toneOf} from '../assets/states.js';

test('a tally leaves out what is none and keeps what nobody knows', () => {
  assert.deepEqual(tally({failed: 2, running: 1, completed: 0, odd: 3}), [
    ['running', 1],
    ['failed', 2],
    ['odd', 3],
  ]);
  assert.deepEqual(tally(undefined), []);
});

test('each state has a tone and words, also by its other names', () => {
  for (const state of states) assert.ok(toneOf(state) && stateWord(state));
  assert.equal(toneOf('expired'), toneOf('failed'));
  assert.equal(toneOf('dispatched'), toneOf('running'));
  assert.equal(stateWord('waiting_approval'), 'needs approval');
  assert.equal(stateWord('half_done'), 'half done');
});

test('a stage is what it does, not what lies before it', () => {
  assert.equal(stateOfStage({failed: 'its job is a dead letter', ended: true}), 'failed');
  assert.equal(stateOfStage({ended: true, backlog: 3}), 'ended');
  assert.equal(stateOfStage({units: [{part: 1}], backlog: 3}), 'working');
  assert.equal(stateOfStage({units: [], backlog: 3}), 'waiting');
  assert.equal(stateOfStage({backlog: 0}), 'idle');
});

test('a tick at midnight is the day, another the time of day', () => {
  const midnight = new Date(2026, 0, 5).getTime();
  assert.match(timeLabel(midnight, 3600000), /5/);
  assert.doesNotMatch(timeLabel(midnight, 3600000), /:/);
  assert.match(timeLabel(midnight + 3600000, 3600000), /:/);
  assert.doesNotMatch(timeLabel(midnight + 3600000, 86400000), /:/);
  assert.match(timeLabel(midnight + 70000, 10000), /:01:10/);
  assert.doesNotMatch(timeLabel(midnight + 70000, 60000), /:01:10/);
});
