import assert from 'node:assert/strict';
import {test} from 'node:test';

import {timeLabel} from '../assets/chart.js';
import {stateOfStage} from '../assets/pages/pipelines.js';
import {noteOf, stateOf} from '../assets/format.js';
import {stateOfUpdate, stateWord, states, tally, toneOf} from '../assets/states.js';

test('a tally leaves out what is none and keeps what nobody knows', () => {
  assert.deepEqual(tally({failed: 2, running: 1, completed: 0, odd: 3}), [
    ['running', 1],
    ['failed', 2],
    ['odd', 3],
  ]);
  assert.deepEqual(tally(undefined), []);
});

test('each state has a tone and words', () => {
  for (const state of states) assert.ok(toneOf(state) && stateWord(state));
  assert.equal(stateWord('waiting_approval'), 'waiting for approval');
  assert.equal(stateWord('half_done'), 'half done');
});

test('an update tells the state of its job', () => {
  assert.equal(stateOfUpdate({entry_state: 'dispatched', state: 'pending'}), 'running');
  assert.equal(stateOfUpdate({entry_state: 'dispatched', state: 'failed'}), 'running', 'another attempt may follow');
  assert.equal(stateOfUpdate({entry_state: 'queued', state: 'waiting_approval'}), 'waiting_approval');
  assert.equal(stateOfUpdate({entry_state: 'expired', state: 'failed'}), 'failed');
});

test('what a job waits for is said as the command line says it', () => {
  assert.equal(noteOf({status: {state: 'pending', waiting: {reason: 'slot', text: '2 of 2 slots are taken'}}}), 'waiting for a slot: 2 of 2 slots are taken');
  assert.equal(noteOf({status: {state: 'pending', waiting: {reason: 'turn'}}}), 'waiting for its turn');
  assert.equal(noteOf({status: {state: 'failed', note: 'no\nmore'}}), 'no');
  assert.equal(noteOf({status: {state: 'running'}}), '');
  assert.equal(stateOf({status: {state: 'checkpointed'}}), 'checkpointed');
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
