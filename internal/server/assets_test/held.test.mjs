import assert from 'node:assert/strict';
import {test} from 'node:test';

import {Held} from '../assets/api.js';

// source is a stream: say has its listeners hear an event.
function source() {
  const listeners = [];
  return {
    on(name, f) {
      listeners.push([name, f]);
      return () =>
        listeners.splice(
          listeners.findIndex((l) => l[1] === f),
          1,
        );
    },
    say: (name, ...args) => listeners.filter((l) => l[0] === name).forEach((l) => l[1](...args)),
    listeners,
  };
}

// answer is something that is fetched.
function answer() {
  let come;
  const waited = new Promise((resolve) => (come = resolve));
  return {waited, come};
}

test('what comes before anybody could listen is heard afterwards, in its order', async () => {
  const stream = source(),
    held = new Held(stream, ['job', 'core']),
    fetched = answer(),
    heard = [];
  const mounted = held.during(async () => {
    await fetched.waited;
    held.on('job', (u) => heard.push(u));
    held.on('core', (u) => heard.push(u));
  });
  stream.say('job', 1);
  stream.say('core', 2);
  stream.say('job', 3);
  fetched.come();
  await mounted;
  stream.say('job', 4);
  assert.deepEqual(heard, [1, 2, 3, 4]);
});

test('what was fetched before an event is not shown instead of it', async () => {
  const stream = source(),
    held = new Held(stream, ['job']),
    first = answer(),
    second = answer();
  let shown = '';
  held.on('job', (u) => (shown = u));
  const load = (from) =>
    held.during(async () => {
      shown = await from.waited;
    });
  const loads = [load(first), load(second)];
  stream.say('job', 'completed');
  second.come('running');
  await loads[1];
  assert.equal(shown, 'running', 'the other load may still show what is older');
  first.come('queued');
  await loads[0];
  assert.equal(shown, 'completed');
});

test('what comes is passed on after a load that failed, too', async () => {
  const stream = source(),
    held = new Held(stream, ['job']),
    heard = [];
  held.on('job', (u) => heard.push(u));
  const load = held.during(async () => {
    throw new Error('away');
  });
  stream.say('job', 1);
  await assert.rejects(load, /away/);
  stream.say('job', 2);
  assert.deepEqual(heard, [1, 2]);
});

test('too much is told as a gap', async () => {
  const stream = source(),
    held = new Held(stream, ['job', 'gap']),
    fetched = answer(),
    heard = [];
  for (const name of ['job', 'gap']) held.on(name, () => heard.push(name));
  const load = held.during(() => fetched.waited);
  for (let i = 0; i < 2500; i++) stream.say('job', i);
  fetched.come();
  await load;
  assert.equal(heard[0], 'gap');
  assert.ok(heard.length <= 1000, heard.length);
});

test('a page that was left hears nothing', async () => {
  const stream = source(),
    held = new Held(stream, ['job']),
    fetched = answer(),
    heard = [];
  held.on('job', (u) => heard.push(u));
  const load = held.during(() => fetched.waited);
  stream.say('job', 1);
  held.close();
  fetched.come();
  await load;
  assert.deepEqual(heard, []);
  assert.equal(stream.listeners.length, 0);
});
