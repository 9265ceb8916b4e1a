import assert from 'node:assert/strict';
import {test} from 'node:test';

import {countCrossings, fold, layout, levelsOf, spread} from '../assets/layout.js';

// random is a small generator of numbers in [0, 1) (mulberry32), the same each run.
function random(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

function randomBoxes(n, seed) {
  const next = random(seed);
  const boxes = [];
  for (let i = 0; i < n; i++) {
    const needs = new Set();
    for (let k = Math.floor(next() * 3); k > 0 && i > 0; k--) needs.add(`n${Math.floor(next() * i)}`);
    boxes.push({id: `n${i}`, level: 0, height: 40 + Math.floor(next() * 3) * 20, needs: [...needs]});
  }
  const levels = levelsOf(boxes);
  for (const b of boxes) b.level = levels.get(b.id);
  return boxes;
}

test('a level is the longest path, whatever the box says', () => {
  const levels = levelsOf([
    {id: 'c', level: 0, needs: ['b', 'a']},
    {id: 'a', level: 0, needs: []},
    {id: 'b', level: 0, needs: ['a']},
    {id: 'later', level: 5, needs: ['a']},
    {id: 'odd', level: 1, needs: ['nobody']},
  ]);
  assert.deepEqual(Object.fromEntries(levels), {a: 0, b: 1, c: 2, later: 5, odd: 1});
});

test('a circle ends', () => {
  const levels = levelsOf([
    {id: 'a', level: 0, needs: ['b']},
    {id: 'b', level: 0, needs: ['a']},
    {id: 'self', level: 0, needs: ['self']},
  ]);
  assert.equal(levels.size, 3);
});

test('a chain of 20,000 does not overflow the stack', () => {
  const boxes = [];
  for (let i = 20000; i > 0; i--) boxes.push({id: `n${i}`, level: 0, needs: i > 1 ? [`n${i - 1}`] : []});
  assert.equal(levelsOf(boxes).get('n20000'), 19999);
});

test('crossings are counted as by comparing each pair', () => {
  for (let seed = 1; seed <= 30; seed++) {
    const next = random(seed);
    const layers = [0, 1].map((level) => Array.from({length: 6}, (_, order) => ({level, order})));
    const edges = Array.from({length: 12}, () => ({
      from: layers[0][Math.floor(next() * 6)],
      to: layers[1][Math.floor(next() * 6)],
    }));
    let want = 0;
    edges.forEach((a, i) =>
      edges.slice(i + 1).forEach((b) => {
        if ((a.from.order - b.from.order) * (a.to.order - b.to.order) < 0) want += 1;
      }),
    );
    assert.equal(countCrossings(layers, edges), want, `seed ${seed}`);
  }
});

test('two lines that cross are untangled', () => {
  const l = layout([
    {id: 'a', level: 0, height: 40, needs: []},
    {id: 'b', level: 0, height: 40, needs: []},
    {id: 'x', level: 1, height: 40, needs: ['b']},
    {id: 'y', level: 1, height: 40, needs: ['a']},
  ]);
  assert.equal(l.crossings, 0);
  assert.equal(l.places.get('a').y < l.places.get('b').y, l.places.get('y').y < l.places.get('x').y);
});

test('a chain is straight', () => {
  const l = layout([
    {id: 'a', level: 0, height: 40, needs: []},
    {id: 'b', level: 1, height: 40, needs: ['a']},
    {id: 'c', level: 2, height: 40, needs: ['b']},
  ]);
  assert.deepEqual(
    ['a', 'b', 'c'].map((id) => l.places.get(id).y),
    [16, 16, 16],
  );
});

test('no boxes give an empty picture', () => {
  const l = layout([]);
  assert.equal(l.places.size, 0);
  assert.ok(l.width > 0 && l.height > 0);
});

test('boxes never overlap, lines run forward, and the picture holds them all', () => {
  for (let seed = 1; seed <= 20; seed++) {
    const boxes = randomBoxes(60, seed);
    const l = layout(boxes, {width: 100, gapX: 50, gapY: 10, pad: 8});
    assert.equal(l.places.size, boxes.length);
    const byLevel = new Map();
    for (const [id, p] of l.places) {
      assert.ok(Number.isFinite(p.y) && p.y >= 8 - 1e-6 && p.y + p.height <= l.height - 8 + 1e-6, `${id} lies outside, seed ${seed}`);
      assert.ok(p.x + 100 <= l.width, `${id} lies outside, seed ${seed}`);
      byLevel.set(p.level, [...(byLevel.get(p.level) || []), p]);
    }
    for (const list of byLevel.values()) {
      list.sort((a, b) => a.y - b.y);
      list.slice(1).forEach((p, i) => assert.ok(p.y >= list[i].y + list[i].height + 10 - 1e-6, `overlap, seed ${seed}`));
    }
    assert.equal(
      l.lines.length,
      boxes.reduce((sum, b) => sum + b.needs.length, 0),
    );
    for (const line of l.lines) line.points.slice(1).forEach((p, i) => assert.ok(p.x > line.points[i].x));
  }
});

test('ordering leaves fewer crossings than the order of the input', () => {
  let before = 0;
  let after = 0;
  for (let seed = 1; seed <= 10; seed++) {
    const boxes = randomBoxes(40, seed);
    const plain = boxes.map((b) => ({...b, from: b}));
    after += layout(boxes).crossings;
    const layers = [];
    const vertex = new Map();
    for (const b of plain) {
      (layers[b.level] ||= []).push(b);
      vertex.set(b.id, {level: b.level, order: layers[b.level].length - 1});
    }
    const short = plain
      .flatMap((b) => b.needs.map((n) => ({from: vertex.get(n), to: vertex.get(b.id)})))
      .filter((e) => e.to.level === e.from.level + 1);
    before += countCrossings(layers, short); // long lines, which cross too, are left out
  }
  assert.ok(after < before, `${after} after, ${before} before`);
});

test('the same graph gives the same picture', () => {
  assert.deepEqual(layout(randomBoxes(80, 7)), layout(randomBoxes(80, 7)));
});

test('2,000 boxes are laid out within ten seconds', () => {
  const boxes = randomBoxes(2000, 3);
  const began = performance.now();
  layout(boxes);
  assert.ok(performance.now() - began < 10000);
});

test('spread keeps order and gaps, and moves nothing that has room', () => {
  const free = [{height: 10}, {height: 10}];
  spread(free, [0, 100], 5);
  assert.deepEqual(
    free.map((v) => v.y),
    [0, 100],
  );
  const tight = [{height: 10}, {height: 10}, {height: 10}];
  spread(tight, [50, 50, 50], 5);
  assert.deepEqual(
    tight.map((v) => v.y),
    [35, 50, 65],
  );
});

test('parts fold into the node that they are of, at any depth', () => {
  const groups = fold([
    {name: 'plan', level: 0},
    {name: 'review', level: 1, needs: ['plan']},
    {name: 'review@1', of: 'review', level: 1},
    {name: 'review@1@1', of: 'review@1', level: 1, needs: ['plan']},
    {name: 'merge', level: 2, needs: ['review@1', 'gone']},
    {name: 'orphan@1', of: 'orphan', level: 0},
  ]);
  assert.deepEqual(
    groups.map((g) => [g.node.name, g.parts.map((p) => p.name), g.needs]),
    [
      ['plan', [], []],
      ['review', ['review@1', 'review@1@1'], ['plan']],
      ['merge', [], ['review']],
      ['orphan@1', [], []],
    ],
  );
});
