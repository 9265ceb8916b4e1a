// The box in which somebody writes to a job's agent: what was said and no agent has yet, the comments on the diff that go along, the
// words, and the buttons to send them and to interrupt the agent.
//
// data-testid: say, say-text, say-send, say-problem, say-note, say-pending, say-comment, interrupt

import {h, failed, icon, plural, refresh, replace, setText, visible} from './dom.js';
import {api, path} from './api.js';
import {compose, place} from './comments.js';
import {said} from './lines.js';
import {onEnter} from './questions.js';

const PENDING = 20; // messages that no agent has read, the last ones

// newID returns a name for a message. crypto.randomUUID is not there on a page without TLS.
export function newID() {
  return 'page-' + [...crypto.getRandomValues(new Uint8Array(16))].map((b) => b.toString(16).padStart(2, '0')).join('');
}

// hears reports whether a job has an agent that can be told something.
export function hears(job) {
  const spec = job.spec || {};
  const flow = spec.flow || {};
  return !['TOOL', 'PLUGIN_EVENT', 'MAINTENANCE', 'EXTERNAL'].includes(spec.type) && !flow.for_each && !(flow.loop && !flow.node);
}

// goTo shows the line that a comment is on, if its diff is drawn.
function goTo(c) {
  const file = c.row?.closest('details');
  if (!file) return;
  file.open = true;
  c.row.scrollIntoView({block: 'center'});
}

// Draft is what somebody has written for a job and not sent: {text, comments, id, said}, where id is the name under which said, the whole
// message, was sent without an answer. The browser keeps it for the tab, so that it survives another page and a reload.
class Draft {
  constructor(job) {
    this.key = 'draft:' + job;
    this.value = {};
    try {
      this.value = JSON.parse(sessionStorage.getItem(this.key)) || {};
    } catch {
      /* nothing was kept */
    }
  }

  save(value) {
    this.value = value;
    try {
      if (value.text || value.comments?.length || value.id) sessionStorage.setItem(this.key, JSON.stringify(value));
      else sessionStorage.removeItem(this.key);
    } catch {
      /* it is not kept where the browser keeps nothing */
    }
  }
}

// Talk is the box:
//
//   const talk = new Talk(ctx, id, comments, () => {…});  // called when something was said
//   talk.show(job, messages);
//   talk.el
export class Talk {
  constructor(ctx, id, comments, told) {
    Object.assign(this, {ctx, id, comments, told});
    this.draft = new Draft(id);
    this.messages = [];
    this.pending = h('div', {class: 'say-pending', 'data-testid': 'say-pending'});
    this.notes = h('ul', {class: 'say-comments', 'aria-label': 'Comments on the changes'});
    this.text = h('textarea', {
      id: 'say-text',
      rows: 1,
      value: this.draft.value.text || '',
      autocomplete: 'off',
      'data-testid': 'say-text',
      'aria-describedby': 'say-hint',
      oninput: () => this.save(),
    });
    this.label = h('label', {class: 'sr-only', for: 'say-text'});
    this.problem = h('p', {class: 'field-problem', role: 'alert', 'data-testid': 'say-problem'});
    this.note = h('p', {class: 'say-note muted small', role: 'status', 'data-testid': 'say-note'});
    this.send = h('button', {type: 'submit', class: 'primary', 'data-testid': 'say-send'}, 'Send');
    this.stop = h('button', {type: 'button', class: 'ghost', hidden: true, 'data-testid': 'interrupt', onclick: () => this.interrupt()}, icon('stop'), 'Interrupt');
    onEnter(this.text, () => this.say());
    comments.changed = () => {
      this.save();
      this.drawComments();
    };
    comments.set(Array.isArray(this.draft.value.comments) ? this.draft.value.comments : []);
    this.form = h(
      'form',
      {
        class: 'say-form',
        novalidate: true,
        onsubmit: (event) => {
          event.preventDefault();
          this.say();
        },
      },
      this.notes,
      this.label,
      this.text,
      h(
        'div',
        {class: 'say-foot'},
        h('span', {class: 'muted small say-hint', id: 'say-hint'}, h('kbd', null, 'Enter'), ' sends, ', h('kbd', null, 'Shift'), ' ', h('kbd', null, 'Enter'), ' begins a line'),
        this.note,
        h('div', {class: 'actions'}, this.stop, this.send),
      ),
      this.problem,
    );
    this.el = h('div', {class: 'say', 'data-testid': 'say'}, this.pending, ctx.can('operate') ? this.form : null);
    this.drawComments();
  }

  // forget has the next message be another one.
  forget() {
    this.draft.value.id = this.draft.value.said = undefined;
    this.save();
  }

  save() {
    const {id, said} = this.draft.value;
    this.draft.save({
      text: this.text.value,
      comments: this.comments.list.map(({path, line, sign, quote, text}) => ({path, line, sign, quote, text})),
      id,
      said,
    });
  }

  // show draws it for how the job stands, and what was said to it.
  show(job, messages) {
    this.messages = messages;
    const ended = ['completed', 'expired', 'cancelled'].includes(job.state);
    const runs = job.state === 'dispatched';
    const [hint, button] = ended
      ? ['Follow up: what should be done next?', 'Follow up']
      : job.status?.waiting?.reason === 'words'
        ? ['Say how to go on', 'Go on']
        : runs
          ? ['Tell the agent something', 'Send']
          : ['Add to its instructions', 'Send'];
    this.form.hidden = !hears(job);
    this.text.placeholder = hint + '\u2026';
    setText(this.label, hint);
    setText(this.send, button);
    this.stop.hidden = !runs || job.cancel_requested;
    this.drawPending();
    const {id, said} = this.draft.value;
    if (!id || this.sending || !messages.some((m) => m.id === id)) return;
    if (compose(this.text.value, this.comments.list) === said) this.sent('it was said'); // and the answer was lost
    else this.forget();
  }

  // heard notes that an event says what became of a message, which its list will say soon.
  heard(e) {
    const m = this.messages.find((other) => other.id === e.ref);
    if (!m || m.state !== 'queued' || e.change === 'refused' || e.attempt < (m.attempt || 0)) return;
    Object.assign(m, {state: e.change, attempt: e.attempt});
    this.drawPending();
  }

  // drawPending shows what no agent has, or will ever have, read: the rest stands in the log.
  drawPending() {
    const left = this.messages.filter((m) => m.state === 'queued' || m.state === 'superseded');
    refresh(
      this.pending,
      left.length > PENDING ? h('p', {class: 'muted small'}, plural(left.length - PENDING, 'earlier message') + ' not shown') : null,
      left.slice(-PENDING).map((m) => said({id: m.id, from: m.from, text: m.text, at: m.at, state: m.state, note: m.reason})),
    );
  }

  drawComments() {
    const {list} = this.comments;
    this.notes.hidden = !list.length;
    replace(
      this.notes,
      list.map((c) =>
        h(
          'li',
          {'data-testid': 'say-comment'},
          h(
            'button',
            {
              type: 'button',
              class: 'link mono',
              title: 'Go to the line',
              onclick: () => goTo(c),
            },
            h('bdi', null, place(c)),
          ),
          h('span', {class: 'say-comment-words'}, visible(c.text)),
          h('button', {type: 'button', class: 'ghost icon-only', 'aria-label': 'Remove the comment on ' + place(c), onclick: () => this.comments.remove(c)}, icon('close')),
        ),
      ),
    );
  }

  // say sends what is written and the comments as one message. It keeps its id until the scheduler has answered, so that sending it
  // again says nothing twice.
  async say() {
    const text = compose(this.text.value, this.comments.list);
    if (!text || this.sending) return;
    const {id, said} = this.draft.value;
    this.draft.value = {...this.draft.value, id: said === text ? id : newID(), said: text};
    this.save();
    this.sending = this.send.disabled = this.text.readOnly = true;
    setText(this.problem, '');
    setText(this.note, '');
    try {
      const {message, note} = await api.post(path`/v1/jobs/${this.id}/messages`, {id: this.draft.value.id, text});
      this.sent(note);
      if (message.job !== this.id && !this.ctx.signal.aborted) this.ctx.navigate('/jobs/' + encodeURIComponent(message.job));
      else this.told();
    } catch (error) {
      if (error.status >= 400 && error.status < 500) this.forget(); // it was refused
      const unknown = error.status ? '' : ' It is not known whether it was said: send it again, it is not said twice.';
      setText(this.problem, visible(error?.detail || error?.message || String(error)) + unknown);
    } finally {
      this.sending = this.send.disabled = this.text.readOnly = false;
    }
  }

  // sent empties the box.
  sent(note) {
    this.text.value = '';
    this.comments.set([]);
    this.draft.save({});
    this.drawComments();
    setText(this.problem, '');
    setText(this.note, note ? visible(note.charAt(0).toUpperCase() + note.slice(1) + '.') : '');
  }

  async interrupt() {
    this.stop.disabled = true;
    try {
      await api.post(path`/v1/jobs/${this.id}/interrupt`);
      setText(this.note, 'It stops its turn and goes on when it is told something.');
      this.text.focus();
      this.told();
    } catch (error) {
      failed(error, 'The agent could not be interrupted');
    } finally {
      this.stop.disabled = false;
    }
  }
}
