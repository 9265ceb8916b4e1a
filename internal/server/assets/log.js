// The log of a job as it goes: what the agent says, runs and changes. The document
// holds the latest events only; older ones are fetched again when they are asked for.

import {h, append, badge, clockTime, visible, duration, tokens, tokensOf, money, plural, count, failed, setText} from './dom.js';

const CHUNK = 250; // events that come and go together
const KEPT = 8; // chunks in the document: 2,000 events
const LONG = 4000; // characters of a text that is shown unfolded
const NEAR = 40; // pixels from the end that count as at the end

// Log is a box of events:
//
//   const log = new Log({older: (after, limit) => events});  // a promise of a list
//   log.add(event);   // a stored event; they come in the order of their cursors
//   log.el            // the element
//   log.stop()        // nothing more comes
export class Log {
  constructor({older}) {
    this.older = older;
    this.calls = new Map(); // of commands and tools that began: their parts
    this.waiting = []; // events that the next frame draws
    this.gone = []; // chunks that were taken out, the oldest first: the cursor before each
    this.chunk = null;
    this.last = 0; // cursor of the latest event
    this.attempt = 0;
    this.unseen = 0;
    this.following = true;
    this.top = this.height = 0;
    this.box = h('div', {
      class: 'log',
      role: 'log',
      'aria-live': 'off',
      tabindex: '0',
      'aria-label': 'Log of the job',
      'data-testid': 'log',
      'data-show': 'main',
      onscroll: () => this.scrolled(),
    });
    this.empty = h('p', {class: 'log-end'}, 'No events yet.');
    this.earlier = h(
      'button',
      {type: 'button', class: 'log-older', hidden: true, 'data-testid': 'log-older', onclick: () => this.fetchOlder()},
      'Show earlier events',
    );
    this.jump = h(
      'button',
      {type: 'button', class: 'log-follow primary', hidden: true, 'data-testid': 'log-follow', onclick: () => this.follow()},
      'Go to the end',
    );
    append(this.box, this.earlier, this.empty);
    this.el = h('div', {class: 'log-box'}, this.box, this.jump);
    this.size = new ResizeObserver(() => {
      if (this.following) this.toEnd();
    });
    this.size.observe(this.box);
    this.filter = h(
      'select',
      {
        'aria-label': 'Show',
        'data-testid': 'log-filter',
        onchange: () => {
          this.box.dataset.show = this.filter.value;
          if (this.following) this.toEnd();
        },
      },
      [
        ['main', 'All except noise'],
        ['all', 'Everything'],
        ['words', 'What it says'],
        ['actions', 'What it does'],
        ['problems', 'Problems'],
      ].map(([v, t]) => h('option', {value: v}, t)),
    );
    this.unfold = h(
      'button',
      {
        type: 'button',
        onclick: () => {
          const all = [...this.box.querySelectorAll('details')];
          const open = !all.every((d) => d.open);
          for (const d of all) d.open = open;
          setText(this.unfold, open ? 'Fold all' : 'Unfold all');
        },
      },
      'Unfold all',
    );
    this.controls = [this.filter, this.unfold];
  }

  add(event) {
    if (event.cursor && event.cursor <= this.last) return; // told again after a reconnection
    this.last = event.cursor || this.last;
    this.waiting.push(event);
    this.frame ??= requestAnimationFrame(() => {
      this.frame = undefined;
      this.draw();
    });
  }

  stop() {
    this.size.disconnect();
    cancelAnimationFrame(this.frame);
    this.frame = undefined;
    if (this.waiting.length) this.draw();
  }

  draw() {
    const events = this.waiting;
    this.waiting = [];
    this.empty.remove();
    // Of a long history only the end is built, the rest is gone before it was here.
    const most = CHUNK * KEPT;
    if (events.length > most && this.following) {
      this.drop();
      const skip = events.length - most;
      for (let i = 0; i < skip; i += CHUNK)
        this.gone.push({after: i ? events[i - 1].cursor : (this.before ?? 0), n: Math.min(CHUNK, skip - i)});
      this.before = events[skip - 1].cursor;
      this.attempt = events[skip - 1].attempt;
      events.splice(0, skip);
    }
    for (const e of events) {
      if (!this.chunk || this.chunk.n >= CHUNK) this.open();
      this.put(e, this.chunk);
      this.before = e.cursor;
    }
    if (this.following) {
      this.trim();
      this.toEnd();
    } else {
      this.unseen += events.length;
    }
    this.tell();
  }

  open() {
    this.chunk = {el: h('div', {class: 'log-chunk'}), after: this.before ?? 0, n: 0};
    this.box.append(this.chunk.el);
    (this.chunks ??= []).push(this.chunk);
  }

  trim() {
    while ((this.chunks ||= []).length > KEPT) {
      const c = this.chunks.shift();
      c.el.remove();
      this.gone.push({after: c.after, n: c.n});
    }
  }

  // drop takes out all that is here.
  drop() {
    for (const c of this.chunks || []) {
      c.el.remove();
      this.gone.push({after: c.after, n: c.n});
    }
    this.chunks = [];
    this.chunk = null;
  }

  async fetchOlder() {
    const c = this.gone.at(-1);
    if (!c || this.fetching) return;
    this.fetching = this.earlier.disabled = true;
    try {
      const events = (await this.older(c.after, c.n)).slice(0, c.n);
      this.gone.pop();
      this.following = false;
      const chunk = {el: h('div', {class: 'log-chunk'}), after: c.after, n: 0};
      const attempt = this.attempt,
        calls = this.calls;
      this.attempt = 0;
      this.calls = new Map();
      for (const e of events) this.put(e, chunk);
      this.attempt = attempt;
      this.calls = calls;
      const height = this.box.scrollHeight,
        top = this.box.scrollTop;
      this.chunks.unshift(chunk);
      this.earlier.after(chunk.el);
      this.box.scrollTop = top + this.box.scrollHeight - height;
    } catch (error) {
      failed(error, 'The earlier events could not be fetched');
    } finally {
      this.fetching = this.earlier.disabled = false;
      this.tell();
    }
  }

  scrolled() {
    const end = this.box.scrollHeight - this.box.scrollTop - this.box.clientHeight;
    if (end < NEAR) {
      this.following = true;
      this.unseen = 0;
    } else if (this.box.scrollTop < this.top && this.box.clientHeight === this.height) {
      this.following = false; // somebody scrolled up: what comes in never moves it that way, though another size of the window does
    } else if (this.following) {
      this.toEnd();
    }
    this.place();
    this.tell();
  }

  follow() {
    this.following = true;
    this.unseen = 0;
    this.trim();
    this.toEnd();
    this.tell();
    this.box.focus({preventScroll: true});
  }

  toEnd() {
    this.box.scrollTop = this.box.scrollHeight;
    this.place();
  }

  place() {
    this.top = this.box.scrollTop;
    this.height = this.box.clientHeight;
  }

  tell() {
    const rest = this.gone.reduce((n, c) => n + c.n, 0);
    this.earlier.hidden = !rest;
    if (rest) setText(this.earlier, `Show earlier events (${count(rest)} more)`);
    this.jump.hidden = this.following;
    setText(this.jump, this.unseen ? 'Go to the end (' + count(this.unseen) + ' new)' : 'Go to the end');
  }

  // put adds an event to a chunk, or to the line of the call that it ends.
  put(e, chunk) {
    chunk.n++;
    if (e.attempt && e.attempt !== this.attempt) {
      this.attempt = e.attempt;
      append(chunk.el, h('p', {class: 'log-end'}, 'Attempt ' + e.attempt));
    }
    if (e.dropped)
      append(chunk.el, h('p', {class: 'log-end ev-gap'}, plural(e.dropped, 'event') + ' dropped here for lack of room on the wire'));
    const key = e.call_id ? e.attempt + ' ' + e.call_id : '';
    const call = key && this.calls.get(key);
    if (call && (e.kind === 'command' || e.kind === 'tool' || e.kind === 'file')) {
      call.end(e);
      this.calls.delete(key);
      return;
    }
    const line = lineOf(e);
    if (!line) return;
    append(chunk.el, line.el);
    if (key && line.end && e.exit_code === undefined) this.calls.set(key, line);
    if (this.calls.size > 1000) this.calls.delete(this.calls.keys().next().value);
  }
}

function row(e, ...body) {
  return h(
    'div',
    {class: 'ev', 'data-kind': e.kind, 'data-testid': 'log-event'},
    h('span', {class: 'at num', title: e.time}, clockTime(e.time)),
    h('div', {class: 'ev-body'}, body),
  );
}

// lineOf returns an event's element, and of a call that may end later the function
// that adds its end.
function lineOf(e) {
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

function cut(e) {
  return e.truncated ? h('span', {class: 'code'}, plural(e.truncated, 'byte') + ' left out') : null;
}

// long folds a long text.
function long(text) {
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
