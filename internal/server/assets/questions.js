// What agents ask people: each question is a card with what it is about and the answers to it.
//
// data-testid: questions, question (data-key is JOB/NUMBER), question-about, answer-once|job|tenant|no|words|choice,
// question-text, question-problem, question-until, dialog-always, dialog-deny

import {ago, ask, exact, firstLine, h, jobLink, plural, setText, timeOf, toast, visible, zero} from './dom.js';
import {api, path} from './api.js';
import {changeView} from './diff.js';
import {fieldsOf, formOf, valueOf} from './forms.js';

const SHOWN = 20; // questions at once
const LATE = 400; // ms that the buttons of a new card rest: a click may have been meant for the one that was there before

// kinds says what a question is about, and what stands for that in a pattern.
const kinds = {
  command: ['wants to run a command', 'command'],
  write: ['wants to write a file', 'path'],
  read: ['wants to read a file', 'path'],
  host: ['wants to reach a host', 'host'],
  tool: ['wants to use a tool', 'tool'],
  words: ['asks', ''],
};

// wantOf says in a few words what an agent wants.
export const wantOf = (q) => (kinds[q.kind] || kinds.words)[0];

// subjectOf returns what a question is about: a command line, a path, a host or the name of a tool.
export const subjectOf = (q) => q[(kinds[q.kind] || kinds.words)[1]] || '';

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

// answerOf returns the answer of a text to a question that wants words: the text, or the JSON that it is if there is a schema.
export function answerOf(schema, text) {
  if (schema) {
    try {
      return {value: JSON.parse(text)};
    } catch {
      // Programs take words for a schema too.
    }
  }
  return {text};
}

// Questions is a box of cards that keeps what somebody writes while the list changes:
//
//   const questions = new Questions(ctx, {alone: true, answered: f, note: (text) => {…}});
//   questions.show(list);  // open questions, in the order in which they are shown
//   questions.el
//
// alone leaves out of which job they are; answered is called after an answer, whoever was first; note shows what follows from it.
export class Questions {
  constructor(ctx, {alone = false, answered = () => {}, note = toast} = {}) {
    Object.assign(this, {ctx, alone, answered, note});
    this.cards = new Map(); // JOB/NUMBER → its card
    this.more = h('p', {class: 'empty', hidden: true});
    this.count = h('p', {class: 'sr-only', role: 'status'});
    this.el = h('div', {class: 'questions', 'data-testid': 'questions'}, this.more, this.count);
    ctx.every(1000, () => this.tick());
  }

  show(list) {
    const shown = new Map(list.slice(0, SHOWN).map((q) => [q.job + '/' + q.number, q]));
    let had = false; // what had the focus is gone
    for (const [key, card] of this.cards) {
      if (shown.has(key)) continue;
      had ||= card.el.contains(document.activeElement);
      card.el.remove();
      this.cards.delete(key);
    }
    let place = this.el.firstElementChild; // where the next card stands: one that stands there is not moved, or its focus would be lost
    for (const [key, q] of shown) {
      if (!this.cards.has(key)) this.cards.set(key, this.card(key, q));
      const card = this.cards.get(key);
      card.q = q;
      if (card.el === place) place = place.nextElementSibling;
      else this.el.insertBefore(card.el, place);
    }
    if (had) (this.el.querySelector('.question') || document.querySelector('#page h1'))?.focus({preventScroll: true});
    this.more.hidden = list.length <= SHOWN;
    setText(this.more, `and ${list.length - SHOWN} more`);
    setText(this.count, list.length ? plural(list.length, 'open question') : '');
    this.tick();
  }

  // tick says how long the runs wait.
  tick() {
    for (const {q, until} of this.cards.values()) {
      const left = zero(q.until) ? 0 : new Date(q.until) - Date.now();
      setText(until, !q.waits ? 'the run does not wait any more; a yes is told to it' : left > 0 ? 'waits for an answer, no by itself ' + ago(q.until) : 'waits for an answer');
      until.classList.toggle('is-soon', q.waits && left > 0 && left < 60000);
    }
  }

  card(key, q) {
    const until = h('span', {class: 'approval-until'});
    const problem = h('p', {class: 'field-problem', role: 'alert', 'data-testid': 'question-problem'});
    const card = {q, until, problem, busy: false};
    const subject = subjectOf(q);
    card.el = h(
      'article',
      {class: 'question', tabindex: '-1', 'data-testid': 'question', 'data-key': key, 'aria-label': `Question ${q.number} of ${firstLine(visible(q.name), 64)}`},
      h(
        'p',
        {class: 'question-head'},
        this.alone ? h('strong', null, capital(wantOf(q))) : [jobLink(q.job, q.name), ' ', wantOf(q)],
      ),
      subject ? h('pre', {class: 'question-about', tabindex: '0', 'aria-label': 'What it is about', 'data-testid': 'question-about'}, exact(subject)) : null,
      q.text && !(subject && q.text.includes(subject) && q.text.length < subject.length + 30) ? h('p', {class: 'question-words wrap'}, visible(q.text)) : null,
      q.diff ? h('details', {class: 'question-diff', open: q.diff.length < 4000}, h('summary', null, 'What it would change'), changeView(q.diff)) : null,
      h('p', {class: 'small muted approval-meta'}, 'asked ', timeOf(q.asked_at), ' \u00b7 ', until, this.alone ? null : [' \u00b7 ', h('bdi', null, visible(q.tenant))]),
      this.ctx.can('operate') ? [this.answers(card), problem] : h('p', {class: 'small muted'}, `An answer needs the role operate; yours is ${this.ctx.me.role}.`),
    );
    return card;
  }

  // answers returns the buttons of a question, or where to write the answer.
  answers(card) {
    const {q} = card;
    const button = (what, title, f, cls) => {
      const el = h('button', {type: 'button', class: cls, disabled: true, 'data-testid': 'answer-' + what, onclick: f}, title);
      setTimeout(() => (el.disabled = false), LATE);
      return el;
    };
    if (q.decisions?.length) {
      return h(
        'div',
        {class: 'question-answers', role: 'group', 'aria-label': 'Answers'},
        button('once', 'Allow once', () => this.answer(card, {decision: 'allow', scope: 'once'}), 'primary'),
        q.kind === 'words'
          ? null
          : [
              button('job', 'For this job', () => this.answer(card, {decision: 'allow', scope: 'job'})),
              button('tenant', 'Always\u2026', () => this.always(card)),
            ],
        button('no', 'No\u2026', () => this.deny(card), 'danger'),
      );
    }
    return this.reply(card, button);
  }

  // reply is where to write the answer to a question that wants words, or to choose it.
  reply(card, button) {
    const {q} = card;
    const id = `answer-${q.job}-${q.number}`;
    const fields = fieldsOf(q.schema);
    if (fields?.length === 1 && fields[0].kind === 'one') {
      const [{name, choices}] = fields;
      return h(
        'div',
        {class: 'question-answers', role: 'group', 'aria-label': 'Answers'},
        choices.map((c) => button('choice', visible(firstLine(c, 80)), () => this.answer(card, {value: name ? {[name]: c} : c}))),
      );
    }
    const form = fields && formOf(fields, id);
    const text = form ? null : h('textarea', {id, rows: 2, 'data-testid': 'question-text', autocomplete: 'off'});
    const send = () => {
      try {
        if (form) this.answer(card, {value: valueOf(fields, form.read())});
        else if (text.value.trim()) this.answer(card, answerOf(q.schema, text.value.trim()));
      } catch (error) {
        card.problem.textContent = error.message;
      }
    };
    if (text) onEnter(text, send);
    return h(
      'div',
      {class: 'question-reply'},
      form ? form.el : [h('label', {class: 'sr-only', for: id}, 'Your answer'), text],
      h('div', {class: 'question-answers'}, button('words', 'Answer', send, 'primary')),
    );
  }

  // answer gives an answer; the first one counts.
  async answer(card, answer) {
    if (card.busy) return;
    card.busy = true;
    card.problem.textContent = '';
    try {
      await this.post(card, answer);
    } catch (error) {
      card.problem.textContent = visible(error?.detail || error?.message || String(error));
      if (error.status === 409) this.answered(); // somebody else may have been first
    } finally {
      card.busy = false;
    }
  }

  async post({q}, answer) {
    const {note} = await api.post(path`/v1/jobs/${q.job}/questions/${q.number}/answer`, answer);
    this.note(capital(note) + '.');
    this.answered();
  }

  // always allows it for all jobs of the tenant, by the pattern that is shown.
  always(card) {
    const {q} = card;
    const subject = exact(subjectOf(q));
    return ask({
      title: 'Always allow it to tenant ' + firstLine(visible(q.tenant), 64) + '?',
      text: `Every job of the tenant may then do this without being asked. It stands in scheduler grants ls until somebody revokes it.`,
      confirm: 'Always allow',
      testid: 'dialog-always',
      fields: [
        {
          name: 'pattern',
          label: 'Pattern',
          type: 'textarea',
          rows: 2,
          value: subject,
          required: true,
          spellcheck: false,
          hint: 'As it stands it is exactly what was asked. In a pattern of yours * stands for any text: npm test *',
          props: {class: 'mono-input'},
        },
      ],
      run: ({pattern}) => this.post(card, {decision: 'allow', scope: 'tenant', pattern: pattern.trim() === subject.trim() ? undefined : pattern.trim()}),
    });
  }

  // deny says no, and why.
  deny(card) {
    const stops = card.q.decisions.includes('deny_and_stop');
    return ask({
      title: 'No to ' + firstLine(visible(card.q.name), 64) + '?',
      confirm: 'No',
      tone: 'bad',
      testid: 'dialog-deny',
      fields: [
        {name: 'text', label: 'What to tell the agent', type: 'textarea', rows: 3, hint: 'Such as: use make test instead'},
        stops ? {name: 'stop', label: 'It also stops its turn', type: 'checkbox'} : null,
      ].filter(Boolean),
      run: ({text, stop}) => this.post(card, {decision: stop ? 'deny_and_stop' : 'deny', text: text.trim() || undefined}),
    });
  }
}

// onEnter has Enter send what is written in a box, and Shift+Enter begin a new line; with a keyboard on the screen, which has no such
// keys, Enter begins a line.
export function onEnter(box, send) {
  const touch = matchMedia('(hover: none) and (pointer: coarse)');
  box.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || event.shiftKey || event.altKey || event.isComposing || touch.matches) return;
    event.preventDefault();
    send();
  });
}
