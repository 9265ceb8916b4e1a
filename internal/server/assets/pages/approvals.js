// Approvals: what waits for a person, questions of agents and works, and the answer to it.
//
// data-testid: approvals, approval (data-key is the job's id), approve, reject, approval-answer, approval-diff, approvals-empty,
// approvals-left

import {approve, reject} from '../actions.js';
import {Questions} from '../questions.js';
import {ago, badge, count, firstLine, h, jobLink, link, plural, replace, setText, shortId, timeOf, visible, zero} from '../dom.js';

const MOST_AT_ONCE = 4; // jobs whose details are fetched at the same time

export const page = {
  title: 'Approvals',
  path: '/approvals',
  nav: 'approvals',
  async mount(root, ctx) {
    const inbox = new Inbox(ctx);
    await inbox.load();
    replace(root, inbox.parts());
    const again = ctx.soon(1000, () => inbox.load().catch(() => {}));
    for (const kind of ['job', 'signal', 'gap']) ctx.stream.on(kind, again);
    ctx.every(1000, () => inbox.tick());
    document.addEventListener('keydown', (event) => inbox.keys(event), {signal: ctx.signal});
  },
};

class Inbox {
  constructor(ctx) {
    this.ctx = ctx;
    this.cards = new Map(); // id of the job → its card
    this.left = h('p', {class: 'muted', role: 'status', 'data-testid': 'approvals-left'});
    this.list = h('div', {class: 'inbox', 'data-testid': 'approvals'});
    this.questions = new Questions(ctx, {answered: () => this.load().catch(() => {})});
    this.queue = []; // cards whose details are still to be fetched
    this.fetching = 0;
  }

  parts() {
    const may = this.ctx.can('operate');
    return [
      h('div', {class: 'page-head'}, h('h1', {tabindex: '-1'}, 'Approvals'), this.left),
      may
        ? h(
            'p',
            {class: 'small muted keys-hint'},
            h('kbd', null, 'j'),
            ' ',
            h('kbd', null, 'k'),
            ' next and previous, ',
            h('kbd', null, 'a'),
            ' approve, ',
            h('kbd', null, 'r'),
            ' reject, ',
            h('kbd', null, 'o'),
            ' open the job',
          )
        : h('p', {class: 'notice tone-idle'}, `You may only read. An answer needs the role operate; yours is ${this.ctx.me.role}.`),
      this.questions.el,
      this.list,
    ];
  }

  async load() {
    const [{jobs}, {questions}] = await Promise.all(
      ['/v1/approvals', '/v1/questions'].map((route) => this.ctx.api.get(route, {signal: this.ctx.signal})),
    );
    this.questions.show(questions || []);
    const asked = questions?.length || 0;
    const waiting = (jobs || []).filter((e) => e.approval);
    const ids = new Set(waiting.map((e) => e.id));
    const focused = [...this.cards.values()].findIndex((c) => c.element.contains(document.activeElement));
    for (const [id, card] of this.cards) {
      if (ids.has(id)) continue;
      card.element.remove();
      this.cards.delete(id);
    }
    for (const e of waiting) {
      const key = e.id + '/' + e.approval.attempt;
      const old = this.cards.get(e.id);
      if (old?.key === key) continue;
      const card = this.card(e, key);
      if (old) old.element.replaceWith(card.element);
      else this.list.append(card.element);
      this.cards.set(e.id, card);
      this.queue.push(card);
    }
    this.list.querySelector('.empty')?.remove();
    if (!this.cards.size && !asked) {
      this.list.append(
        h('p', {class: 'empty', 'data-testid': 'approvals-empty'}, 'Nothing waits for you. What does appears here.'),
      );
    }
    setText(this.left, this.cards.size + asked ? `${count(this.cards.size + asked)} waiting` : '');
    if (focused >= 0 && !this.list.contains(document.activeElement)) this.focus(Math.min(focused, this.cards.size - 1));
    this.tick();
    this.fetch();
  }

  card(e, key) {
    const a = e.approval,
      id = e.id,
      name = e.spec.name || e.spec.id;
    const job = {id, name};
    const until = zero(a.until) ? null : h('span', {class: 'approval-until'});
    const work = h('div', {class: 'approval-work muted'}, 'Reading the result\u2026');
    const may = this.ctx.can('operate');
    const element = h(
      'article',
      {class: 'panel approval', tabindex: '-1', 'data-key': id, 'data-testid': 'approval', 'aria-labelledby': 'approval-' + id},
      h(
        'header',
        {class: 'approval-head'},
        h('h2', {id: 'approval-' + id}, jobLink(id, name)),
        badge('waiting_approval'),
        e.rejections ? badge('rejected', {tone: 'bad', label: plural(e.rejections, 'rejection')}) : null,
        may
          ? h(
              'div',
              {class: 'actions'},
              h(
                'button',
                {
                  type: 'button',
                  class: 'danger',
                  'data-testid': 'reject',
                  'aria-label': 'Reject ' + firstLine(name),
                  onclick: () => this.answer(id, reject),
                },
                'Reject\u2026',
              ),
              h(
                'button',
                {
                  type: 'button',
                  class: 'primary',
                  'data-testid': 'approve',
                  'aria-label': 'Approve ' + firstLine(name),
                  onclick: () => this.answer(id, approve),
                },
                'Approve\u2026',
              ),
            )
          : null,
      ),
      h('p', {class: 'approval-why wrap'}, visible(a.why)),
      h(
        'p',
        {class: 'small muted approval-meta'},
        meta([
          ['asked ', timeOf(a.asked_at)],
          until,
          [h('bdi', null, visible(e.spec.tenant))],
          [visible(e.spec.worker)],
          e.attempts > 1 ? [`attempt ${a.attempt}`] : null,
          a.draw === undefined || a.draw === null ? null : [`drew ${a.draw.toFixed(2)}`],
          ['job ', h('span', {class: 'mono'}, shortId(id))],
        ]),
      ),
      work,
    );
    return {id, key, job, element, work, until, a};
  }

  // tick says how long is left.
  tick() {
    for (const {until, a} of this.cards.values()) {
      if (!until) continue;
      const left = new Date(a.until) - Date.now();
      const what = a.default === 'approve' ? 'approved' : 'rejected';
      setText(until, left > 0 ? `${what} by itself ${ago(a.until)}` : `is being ${what}: nobody answered in time`);
      until.classList.toggle('is-soon', left < 10 * 60000);
    }
  }

  // fetch gets what the jobs have made, some at a time.
  fetch() {
    while (this.fetching < MOST_AT_ONCE && this.queue.length) {
      const card = this.queue.shift();
      if (this.cards.get(card.id) !== card) continue;
      this.fetching += 1;
      this.ctx.api
        .get(this.ctx.path`/v1/jobs/${card.id}`, {signal: this.ctx.signal})
        .then((answer) => this.showWork(card, answer))
        .catch((error) => {
          if (error.name !== 'AbortError') replace(card.work, 'The result could not be read: ' + visible(error.detail || error.message));
        })
        .finally(() => {
          this.fetching -= 1;
          this.fetch();
        });
    }
  }

  showWork(card, {attempts}) {
    const made = (attempts || []).find((t) => t.attempt === card.a.attempt) || (attempts || []).at(-1);
    const o = made?.outcome || {};
    const files = o.files || [];
    const patch = (o.artifacts || []).some((f) => f.name === 'patch');
    const answer = visible(o.answer || '').trim();
    card.work.classList.remove('muted');
    replace(
      card.work,
      o.message ? h('p', {class: 'wrap'}, visible(firstLine(o.message, 400))) : null,
      h(
        'p',
        {class: 'approval-diff wrap', 'data-testid': 'approval-diff'},
        o.diff_stat ? h('strong', null, visible(firstLine(o.diff_stat, 300))) : h('span', {class: 'muted'}, 'No file was changed.'),
        patch ? [' ', h('a', {href: link`/jobs/${card.id}` + '?tab=diff'}, 'See the diff')] : null,
      ),
      files.length
        ? h(
            'details',
            null,
            h('summary', null, plural(files.length, 'changed file')),
            h(
              'ul',
              {class: 'mono small file-list'},
              files
                .slice(0, 100)
                .map((f) =>
                  h('li', {class: 'wrap'}, h('span', {class: 'muted'}, visible(f.change) + ' '), h('bdi', null, visible(f.path))),
                ),
              files.length > 100 ? h('li', {class: 'muted'}, `and ${files.length - 100} more`) : null,
            ),
          )
        : null,
      o.denied?.length
        ? h(
            'details',
            null,
            h('summary', null, plural(o.denied.length, 'refused tool call')),
            h(
              'ul',
              {class: 'mono small file-list'},
              o.denied.map((d) => h('li', {class: 'wrap'}, visible(d))),
            ),
          )
        : null,
      answer
        ? h(
            'details',
            {'data-testid': 'approval-answer', open: answer.length <= 240},
            h('summary', null, 'Answer'),
            h('pre', {class: 'prose', tabindex: '0'}, pretty(answer)),
          )
        : h('p', {class: 'muted'}, 'It gave no answer.'),
    );
  }

  async answer(id, how) {
    const card = this.cards.get(id);
    if (!card || !this.ctx.can('operate')) return;
    const place = [...this.cards.keys()].indexOf(id);
    const done = await how(card.job);
    if (!done || this.ctx.signal.aborted) {
      card.element.focus({preventScroll: true});
      return;
    }
    await this.load().catch(() => {});
    if (!this.list.contains(document.activeElement)) this.focus(Math.min(place, this.cards.size - 1));
  }

  focus(place) {
    const cards = [...this.cards.values()];
    if (!cards.length) {
      document.querySelector('#page h1')?.focus();
      return;
    }
    const {element} = cards[Math.max(0, Math.min(cards.length - 1, place))];
    element.focus({preventScroll: true});
    element.scrollIntoView({block: 'nearest'});
  }

  keys(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (event.target.closest?.('input, textarea, select, dialog, [contenteditable]') || document.querySelector('dialog[open]')) return;
    const cards = [...this.cards.values()];
    const at = cards.findIndex((c) => c.element.contains(document.activeElement));
    const act = {
      j: () => this.focus(at + 1),
      k: () => this.focus(at < 0 ? cards.length - 1 : at - 1),
      a: () => at >= 0 && this.answer(cards[at].id, approve),
      r: () => at >= 0 && this.answer(cards[at].id, reject),
      o: () => at >= 0 && this.ctx.navigate(`/jobs/${encodeURIComponent(cards[at].id)}`),
    }[event.key];
    if (!act || !cards.length) return;
    event.preventDefault();
    act();
  }
}

// meta puts dots between what there is.
const meta = (parts) => parts.filter(Boolean).map((part, i) => [i ? ' \u00b7 ' : '', part]);

// pretty indents an answer that is JSON.
function pretty(text) {
  if (!/^[[{]/.test(text)) return text;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
