import assert from 'node:assert/strict';
import {test} from 'node:test';

import {lineOf as told} from '../assets/attention.js';
import {compose, place} from '../assets/comments.js';
import {fieldsOf, valueOf} from '../assets/forms.js';
import {lastLine} from '../assets/lines.js';
import {below} from '../assets/log.js';
import {answerOf, subjectOf, wantOf} from '../assets/questions.js';
import {hears, newID} from '../assets/talk.js';

const comment = (path, line, text, more) => ({path, line, sign: '+', quote: 'the line', text, ...more});

test('comments become one message, in the order of files and lines', () => {
  assert.equal(
    compose(' First. \n', [comment('b.go', 7, 'why?'), comment('a.go', 12, 'no'), comment('a.go', 3, 'two\nlines', {sign: '-', quote: '\told'})]),
    'First.\n\na.go:3 (removed)\n> \told\ntwo\nlines\n\na.go:12\n> the line\nno\n\nb.go:7\n> the line\nwhy?',
  );
  assert.equal(compose('', [comment('a.go', 1, 'x')]), 'a.go:1\n> the line\nx');
  assert.equal(compose('  ', []), '');
});

test('what is quoted is short and holds nothing that is not seen', () => {
  const text = compose('', [comment('a\u202eb.go', 1, 'x', {quote: 'q\u0000' + 'y'.repeat(1000)})]);
  assert.match(text, /^a⟨202E⟩b\.go:1\n> q⟨0000⟩y+…\nx$/);
  assert.ok(text.length < 300);
  assert.equal(place(comment('a.go', 2, 'x', {sign: ' '})), 'a.go:2');
});

test('ids of messages are valid and not alike', () => {
  const ids = new Set(Array.from({length: 100}, newID));
  assert.equal(ids.size, 100);
  for (const id of ids) assert.match(id, /^[A-Za-z0-9._-]{1,100}$/);
});

test('only jobs with an agent hear', () => {
  assert.ok(hears({spec: {type: 'WORKER_TASK'}}));
  assert.ok(hears({spec: {type: 'LLM', flow: {loop: {}, node: 'body'}}}));
  for (const spec of [{type: 'TOOL'}, {type: 'PLUGIN_EVENT'}, {type: 'MAINTENANCE'}, {type: 'EXTERNAL'}, {flow: {for_each: {}}}, {flow: {loop: {}}}]) assert.ok(!hears({spec}), JSON.stringify(spec));
});

test('the form of a schema', () => {
  const fields = fieldsOf({
    type: 'object',
    required: ['one', 'some', 'n'],
    properties: {
      one: {enum: ['a', 'b'], title: 'Which?'},
      some: {type: 'array', items: {type: 'string', enum: ['x', 'y']}},
      n: {type: 'integer'},
      ok: {type: 'boolean'},
      words: {type: 'string', examples: ['like this']},
    },
  });
  assert.deepEqual(
    fields.map((f) => [f.name, f.label, f.kind, f.required, f.choices.length]),
    [
      ['one', 'Which?', 'one', true, 2],
      ['some', 'some', 'several', true, 2],
      ['n', 'n', 'number', true, 0],
      ['ok', 'ok', 'yes', false, 0],
      ['words', 'words', 'text', false, 1],
    ],
  );
  assert.deepEqual(valueOf(fields, {one: 'b', some: ['x', 'y'], n: ' 3 ', ok: false, words: ''}), {one: 'b', some: ['x', 'y'], n: 3, ok: false});
  assert.throws(() => valueOf(fields, {one: 'b', some: [], n: '3'}), /some is missing/);
  assert.throws(() => valueOf(fields, {one: undefined, some: ['x'], n: '3'}), /Which\? is missing/);
  assert.throws(() => valueOf(fields, {one: 'a', some: ['x'], n: 'three'}), /n must be a number/);
  assert.equal(valueOf(fieldsOf({enum: ['red', 'green']}), {'': 'red'}), 'red');
  for (const schema of [undefined, {type: 'object'}, {type: 'object', properties: {a: {type: 'object'}}}, {type: 'object', properties: {a: null}}, {properties: {a: {type: 'array', items: {type: 'object'}}}}])
    assert.equal(fieldsOf(schema), null, JSON.stringify(schema));
});

test('an answer in words', () => {
  assert.deepEqual(answerOf(undefined, '{"a":1}'), {text: '{"a":1}'});
  assert.deepEqual(answerOf({type: 'object'}, '{"a":1}'), {value: {a: 1}});
  assert.deepEqual(answerOf({type: 'object'}, 'as you like'), {text: 'as you like'});
});

test('what a question is about', () => {
  assert.equal(subjectOf({kind: 'command', command: 'make', path: '/x'}), 'make');
  assert.equal(subjectOf({kind: 'write', path: 'a.txt'}), 'a.txt');
  assert.equal(subjectOf({kind: 'words', text: 'well?'}), '');
  assert.equal(wantOf({kind: 'a new kind'}), 'asks');
});

test('a notification says one short clean line', () => {
  assert.deepEqual(told({name: 'fix', kind: 'command', command: 'make\n  all', text: 'run make?'}), {title: 'fix wants to run a command', body: 'make all'});
  const {title, body} = told({name: 'n'.repeat(500), kind: 'words', text: '\u001b[31mred\u202e ' + 'z'.repeat(500)});
  assert.ok(title.length <= 80 && body.length <= 80);
  assert.match(body, /^red⟨202E⟩ z+…$/);
});

test('the last line of a run', () => {
  assert.equal(lastLine([]), '');
  assert.equal(lastLine([{kind: 'usage'}, {kind: 'state', state: 'running'}]), '');
  assert.equal(lastLine([{kind: 'text', text: 'first'}, {kind: 'text', text: 'two\nlines\n\n'}, {kind: 'usage'}]), 'lines');
  assert.equal(lastLine([{kind: 'text', text: 'first'}, {kind: 'command', command: 'go test\n./...'}]), '$ go test');
  assert.equal(lastLine([{kind: 'file', path: 'a.go', change: 'added'}]), 'added a.go');
  assert.equal(lastLine([{kind: 'question', text: 'run it?'}]), 'asks run it?');
  assert.equal(lastLine([{kind: 'text', text: '\u001b]0;title\u0007\u202ehidden'}]), '⟨202E⟩hidden');
});

test('what subagents do stands below the calls that started them', () => {
  const shown = [];
  const line = (name) => {
    const el = {name, after: (other) => shown.splice(shown.indexOf(el) + 1, 0, other)};
    return {el};
  };
  const [first, second, inner] = ['first', 'second', 'inner'].map(line);
  shown.push(first.el, second.el);
  below(first, line('first 1'));
  below(second, line('second 1'));
  below(first, inner); // which starts another
  below(inner, line('inner 1'));
  below(first, line('first 2'));
  below(inner, line('inner 2'));
  below(second, line('second 2'));
  assert.deepEqual(
    shown.map((el) => el.name),
    ['first', 'first 1', 'inner', 'inner 1', 'inner 2', 'first 2', 'second', 'second 1', 'second 2'],
  );
});
