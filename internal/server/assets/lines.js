// One event of a job's log as a line: what the agent says, runs and changes, what it is told and what it asks.

import {h, badge, clockTime, exact, firstLine, visible, duration, tokens, tokensOf, money, plural, count} from './dom.js';

const LONG = 4000; // characters of a text that is shown unfolded

// messageStates are those of a message, each with how it looks and what it means.
const messageStates = {
  queued: ['ask', 'no agent has it yet'],
  delivered: ['run', "the agent's program has it, for this turn or the next one"],
  folded: ['good', 'it stands in a turn: the agent has read it'],
  superseded: ['off', 'no agent of this job will be told'],
};

// messageBadge shows what became of a message.
export function messageBadge(state) {
  const [tone, title] = messageStates[state] || ['idle', ''];
  return badge(state, {tone, title});
}

// said returns a message as it stands in the conversation; its state can be set later.
export function said({id, from, text, at, state, attempt, note}) {
  return h(
    'div',
    {class: 'bubble', 'data-testid': 'message', 'data-message': id, 'data-attempt': attempt ? String(attempt) : null},
    h(
      'p',
      {class: 'bubble-head'},
      h('bdi', {class: 'bubble-from'}, visible(from || 'somebody')),
      at ? h('span', {class: 'num muted', title: at}, clockTime(at)) : null,
      h('span', {class: 'bubble-state'}, state ? messageBadge(state) : null),
    ),
    h('div', {class: 'bubble-text'}, long(text)),
    note ? h('p', {class: 'muted small'}, visible(note)) : null,
  );
}

// setState shows what became of a message that is there already.
export function setState(bubble, state) {
  const box = bubble.querySelector('.bubble-state');
  if (box.firstElementChild?.dataset.state !== state) box.replaceChildren(messageBadge(state));
}

// lastLine returns what a run has said or done last, in one line of plain text; "" if none of the events says it.
export function lastLine(events) {
  for (const e of [...events].reverse()) {
    const line = {
      text: e.text?.trimEnd().split('\n').at(-1),
      command: e.command && '$ ' + e.command,
      tool: e.tool,
      file: e.path && `${e.change || 'changed'} ${e.path}`,
      question: e.text && 'asks ' + e.text,
    }[e.kind];
    if (line?.trim()) return firstLine(visible(line), 200);
  }
  return '';
}

function row(e, ...body) {
  return h(
    'div',
    {class: ['ev', e.parent && 'ev-nested'], 'data-kind': e.kind, 'data-testid': 'log-event'},
    h('span', {class: 'at num', title: e.time}, clockTime(e.time)),
    h('div', {class: 'ev-body'}, body),
  );
}

// lineOf returns an event's element, and of a call that may end later the function
// that adds its end; null of an event that says nothing.
export function lineOf(e) {
  switch (e.kind) {
    case 'command':
    case 'tool':
      return call(e);
    case 'file':
      return {
        el: row(
          e,
          h('span', {class: e.change === 'deleted' ? 'minus' : 'plus'}, visible(e.change || 'changed')),
          ' ',
          h('bdi', null, visible(e.path)),
          outcome(e),
        ),
      };
    case 'message':
      return e.change === 'refused'
        ? {el: row(e, h('span', {class: 'muted'}, 'did not take a message of ', h('bdi', null, visible(e.from || 'somebody')), '; its next attempt is told'))}
        : {el: row(e, said({id: e.ref, from: e.from, text: e.text, state: e.change, attempt: e.attempt}), cut(e))};
    case 'question':
      return {el: row(e, h('strong', null, 'asks '), long(e.text), about(e), cut(e))};
    case 'answer':
      return {el: row(e, h('strong', null, e.from ? [h('bdi', null, visible(e.from)), ' '] : null), long(e.text), cut(e))};
    case 'usage':
      return {el: row(e, 'used ' + tokens(tokensOf(e.usage)) + ' tokens' + (e.usage?.cost_usd ? ', ' + money(e.usage.cost_usd) : ''))};
    case 'state':
      return {el: row(e, visible(String(e.state || '').replaceAll('_', ' ')), e.text ? ': ' + visible(e.text) : null)};
    case 'session':
      return {el: row(e, 'session ' + visible(e.session))};
    case 'step':
      return e.step || e.text || e.kept
        ? {
            el: row(
              e,
              'step ',
              h('strong', null, visible(e.step)),
              e.kept ? [' ', badge(e.kept, {label: kept[e.kept]})] : null,
              e.text ? ' ' + visible(e.text) : null,
            ),
          }
        : null;
    case 'text':
      return {el: row(e, long(e.text), cut(e))};
    default:
      return e.text ? {el: row(e, e.kind === 'log' ? null : h('strong', null, visible(e.kind) + ' '), long(e.text), cut(e))} : null;
  }
}

const kept = {fresh: 'computed', store: 'from the store', refused: 'not stored'};

// about returns what a question is about, where its text does not say it.
function about(e) {
  const what = e.command || e.path || '';
  return what && !String(e.text ?? '').includes(what) ? h('pre', {class: 'ev-about'}, exact(what)) : null;
}

function cut(e) {
  return e.truncated ? h('span', {class: 'code'}, plural(e.truncated, 'byte') + ' left out') : null;
}

// long folds a long text.
export function long(text) {
  if (!text || text.length <= LONG) return visible(text);
  return [
    visible(text.slice(0, LONG)),
    folded('\u2026 and ' + count(text.length - LONG) + ' characters more', () => visible(text.slice(LONG))),
  ];
}

// folded returns a <details> whose content is made when it is first opened.
function folded(summary, content) {
  const el = h(
    'details',
    {
      ontoggle: () => {
        if (el.open && el.children.length === 1) el.append(h('pre', {tabindex: '0'}, content()));
      },
    },
    h('summary', {class: 'ev-title'}, summary),
  );
  return el;
}

function outcome(e) {
  const bad = e.exit_code !== undefined && e.exit_code !== 0;
  return [
    e.exit_code === undefined || (e.exit_code === 0 && e.kind !== 'command')
      ? null
      : h('span', {class: ['code', bad && 'bad']}, 'exit ' + e.exit_code),
    e.ms ? h('span', {class: 'code'}, duration(e.ms)) : null,
  ];
}

// call is the line of a command or tool: its title, and folded what was given to it and
// what it said.
function call(e) {
  const state = {start: e, end: null};
  const el = row(e);
  const body = el.lastElementChild;
  const draw = () => {
    const last = state.end || state.start;
    const command = last.command || state.start.command || '';
    const name = last.tool || state.start.tool || '';
    const title = e.kind === 'command' ? '$ ' + (command || name) : name || command || 'tool';
    const head = title.split('\n', 1)[0].slice(0, 400);
    const parts = [head === title ? '' : title, state.end && state.start.text !== state.end.text ? state.start.text : '', last.text].filter(
      Boolean,
    );
    const path = last.path || state.start.path;
    const summary = [
      h('span', {class: 'ev-title'}, visible(head), head === title ? null : ' \u2026'),
      path ? [' ', h('bdi', null, visible(path))] : null,
      outcome(last),
      cut(last),
    ];
    const open = body.querySelector('details')?.open;
    const content = parts.length ? folded(summary, () => visible(parts.join('\n\n'))) : h('span', null, summary);
    body.replaceChildren(content);
    if (open) content.open = true;
    if (last.exit_code !== undefined && last.exit_code !== 0) el.setAttribute('data-bad', '');
  };
  draw();
  return {
    el,
    end(later) {
      state.end = later;
      draw();
    },
  };
}
