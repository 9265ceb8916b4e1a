import assert from 'node:assert/strict';
import {test} from 'node:test';

import {fitSpan, niceTicks, pack, timeTicks} from '../assets/packing.js';

test('spans that touch share a row, spans that overlap do not', () => {
  const a = {from: 0, to: 10};
  const b = {from: 10, to: 20};
  const c = {from: 5, to: 15};
  const {rows, row} = pack([b, c, a]);
  assert.equal(rows, 2);
  assert.deepEqual(
    [a, b, c].map((s) => row.get(s)),
    [0, 0, 1],
  );
});

test('a gap is kept', () => {
  assert.equal(
    pack(
      [
        {from: 0, to: 10},
        {from: 11, to: 20},
      ],
      5,
    ).rows,
    2,
  );
  assert.equal(
    pack(
      [
        {from: 0, to: 10},
        {from: 15, to: 20},
      ],
      5,
    ).rows,
    1,
  );
});

test('the rows are as many as the most that run at once', () => {
  let seed = 1;
  const next = () => (seed = (seed * 48271) % 2147483647) / 2147483647;
  for (let round = 0; round < 20; round++) {
    const spans = Array.from({length: 200}, () => {
      const from = Math.floor(next() * 1000);
      return {from, to: from + 1 + Math.floor(next() * 50)};
    });
    const {rows, row} = pack(spans);
    let most = 0;
    for (const s of spans) most = Math.max(most, spans.filter((o) => o.from <= s.from && o.to > s.from).length);
    assert.equal(rows, most);
    for (const s of spans) {
      for (const o of spans) {
        if (s !== o && row.get(s) === row.get(o)) assert.ok(s.to <= o.from || o.to <= s.from);
      }
    }
  }
});

test('5,000 spans are packed within a second', () => {
  const spans = Array.from({length: 5000}, (_, i) => ({from: (i * 7) % 5000, to: ((i * 7) % 5000) + 40}));
  pack(spans);
  const began = performance.now();
  pack(spans);
  assert.ok(performance.now() - began < 1000);
});

test('nothing needs no row', () => assert.equal(pack([]).rows, 0));

test('ticks are round moments of local time', () => {
  const from = Date.UTC(2026, 0, 1, 0, 7, 3);
  const {step, at} = timeTicks(from, from + 3600e3, 8, 0);
  assert.equal(step, 600e3);
  assert.deepEqual(
    at.map((t) => new Date(t).toISOString().slice(11, 16)),
    ['00:10', '00:20', '00:30', '00:40', '00:50', '01:00'],
  );
  const india = timeTicks(from, from + 24 * 3600e3, 5, -330); // 5:30 ahead
  assert.ok(india.at.length >= 3 && india.at.every((t) => (t + 330 * 60e3) % india.step === 0));
});

test('ticks are never more than asked for', () => {
  for (const hours of [0.1, 1, 6, 24, 24 * 400]) assert.ok(timeTicks(5, 5 + hours * 3600e3, 6, 0).at.length <= 6);
});

test('numbers of an axis are round and cover the range', () => {
  assert.deepEqual(niceTicks(0, 1, 4), [0, 0.25, 0.5, 0.75, 1]);
  assert.deepEqual(niceTicks(0, 7, 4), [0, 2, 4, 6, 8]);
  assert.deepEqual(niceTicks(0.3, 0.9, 3), [0.2, 0.4, 0.6, 0.8, 1]);
  assert.deepEqual(niceTicks(3, 3, 4), [3]);
});

test('with a bound on rows, the rest overlaps in one more', () => {
  const spans = Array.from({length: 55}, (_, i) => ({from: i, to: 1000}));
  const {rows, row, over} = pack(spans, 0, 16);
  assert.equal(rows, 17);
  assert.equal(over, 39);
  assert.deepEqual([row.get(spans[15]), row.get(spans[16]), row.get(spans[54])], [15, 16, 16]);
  const later = {from: 1000, to: 1001};
  assert.equal(pack([...spans, later], 0, 16).row.get(later), 0, 'a row that is free again is not used');
  assert.deepEqual({...pack(spans.slice(0, 16), 0, 16), row: null}, {rows: 16, over: 0, row: null});
});

test('the span of time fits what there is', () => {
  const minute = 60000;
  const lengths = [15 * minute, 60 * minute, 360 * minute, 1440 * minute];
  const fit = (...ago) => fitSpan(ago.map((m) => 1e12 - m * minute), 1e12, lengths, 60 * minute) / minute;
  assert.equal(fit(), 60);
  assert.equal(fit(1, 2, 14), 15);
  assert.equal(fit(1, 2, 300), 15, 'one long ago does not make the rest slivers');
  assert.equal(fit(5, 20, 40), 60);
  assert.equal(fit(200, 300, 301), 360);
  assert.equal(fit(5000), 1440, 'what is older than all lengths');
});
