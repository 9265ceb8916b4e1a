// The log of a job as it goes, between what it was asked and what it answers: what the
// agent says, runs and changes, what it is told and what it asks. The document holds
// the latest events only; older ones are fetched again when they are asked for.

import {h, append, plural, count, failed, setText} from './dom.js';
import {lineOf, setState} from './lines.js';

const CHUNK = 250; // events that come and go together
const KEPT = 8; // chunks in the document: 2,000 events
const NEAR = 40; // pixels from the end that count as at the end

// below puts a line of a subagent under that of the call that started it, after what stands there already.
export function below(call, line) {
  const last = call.last ?? call.el;
  last.after(line.el);
  line.under = call;
  for (let c = call; c && (c.last ?? c.el) === last; c = c.under) c.last = line.el;
}

// Log is a box of events:
//
//   const log = new Log({older: (after, limit) => events});  // a promise of a list
//   log.add(event);         // a stored event; they come in the order of their cursors
//   log.setMessages(list);  // what was said to the job, and what became of it
//   log.el                  // the element; log.head and log.tail are its first and last parts, for others to fill
//   log.stop()              // nothing more comes
//
// between, if given, is called with the number of an attempt that another one follows, and
// returns what stands between the two.
export class Log {
  constructor({older, between}) {
    this.older = older;
    this.between = between;
    this.states = new Map(); // of messages, by their ids
    this.calls = new Map(); // of commands and tools that began: their parts
    this.waiting = []; // events that the next frame draws
    this.gone = []; // chunks that were taken out, the oldest first: the cursor before each
    this.chunk = null;
    this.last = 0; // cursor of the latest event
    this.attempt = 0;
    this.asking = false; // the last state was that the run waits for a person
    this.unseen = 0;
    this.following = true;
    this.top = this.height = 0;
    this.box = h('div', {
      class: 'log',
      role: 'log',
      'aria-live': 'off',
      tabindex: '0',
      'aria-label': 'Conversation with the agent',
      'data-testid': 'log',
      'data-show': 'main',
      onscroll: () => this.scrolled(),
    });
    this.head = h('div', {class: 'log-head'});
    this.tail = h('div', {class: 'log-tail'});
    this.empty = h('p', {class: 'log-end'}, 'Nothing has happened yet.');
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
    append(this.box, this.head, this.earlier, this.empty, this.tail);
    this.el = h('div', {class: 'log-box'}, this.box, this.jump);
    this.size = new ResizeObserver(() => {
      if (this.following) this.toEnd();
    });
    for (const part of [this.box, this.head, this.tail]) this.size.observe(part);
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

  // setMessages shows what became of messages, also of those that are not drawn yet.
  setMessages(list) {
    this.states = new Map(list.map((m) => [m.id, m]));
    for (const bubble of this.box.querySelectorAll('[data-message]')) this.mark(bubble);
  }

  // mark shows what became of the message of a line, if this attempt was the last that was given it.
  mark(bubble) {
    const m = this.states.get(bubble.dataset.message);
    if (m && m.state !== 'queued' && m.attempt === Number(bubble.dataset.attempt)) setState(bubble, m.state);
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
    this.tail.before(this.chunk.el);
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
      const {attempt, asking, calls} = this;
      this.attempt = 0;
      this.calls = new Map();
      for (const e of events) this.put(e, chunk);
      Object.assign(this, {attempt, asking, calls});
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

  // follow goes to the end, and stays there.
  follow() {
    this.following = true;
    this.unseen = 0;
    this.trim();
    this.toEnd();
    this.tell();
    this.box.focus({preventScroll: true});
    this.box.scrollIntoView({block: 'nearest'});
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
      const before = this.attempt;
      this.attempt = e.attempt;
      append(chunk.el, before ? this.between?.(before) : null, e.attempt > 1 || before ? h('p', {class: 'log-end'}, 'Attempt ' + e.attempt) : null);
    }
    if (e.kind === 'state') {
      // A question says that the run waits, and its answer that it goes on.
      const waited = this.asking;
      this.asking = e.state === 'waiting_approval';
      if (this.asking || (waited && e.state === 'running')) return;
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
    line.chunk = chunk;
    const starter = e.parent && this.calls.get(e.attempt + ' ' + e.parent);
    if (starter?.chunk === chunk) below(starter, line);
    else append(chunk.el, line.el);
    for (const bubble of line.el.querySelectorAll('[data-message]')) this.mark(bubble);
    if (key && line.end && e.exit_code === undefined) this.calls.set(key, line);
    if (this.calls.size > 1000) this.calls.delete(this.calls.keys().next().value);
  }
}
