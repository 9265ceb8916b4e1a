// All jobs, filtered and searched. Only the rows near the window are in the document,
// and only a few fields of each job are kept, so that 100,000 of them stay light.

import {
  h,
  replace,
  append,
  badge,
  stateOf,
  noteOf,
  firstLine,
  visible,
  cost,
  timeOf,
  count,
  plural,
  jobLink,
  failed,
  link,
  setText,
} from '../dom.js';
import {drawing, stateOfUpdate, stateWord} from '../states.js';

const PAGE = 200; // jobs that one call fetches
const AHEAD = 12; // rows beyond the window that are drawn
const NEWS = 1000; // new jobs that are counted

// The states in the order of a job's life, with that of all.
const chips = ['', 'pending', 'running', 'waiting_approval', 'checkpointed', 'completed', 'failed', 'cancelled'];

// slim keeps of an entry what its row shows.
function slim(e) {
  return {
    id: e.id,
    name: e.spec?.id || '',
    tenant: e.spec?.tenant || '',
    worker: workerOf(e),
    state: stateOf(e),
    why: noteOf(e),
    what: firstLine(e.spec?.instructions, 120),
    attempts: e.attempts || 0,
    cost: e.spent ? cost(e.spent) : '',
    at: e.completed_at || e.dispatched_at || e.created_at,
    changed: 0,
  };
}

function workerOf(e) {
  const choices = [{worker: e.spec?.worker, model: e.spec?.model}, ...(e.spec?.fallback || [])];
  return choices[Math.min(e.choice || 0, choices.length - 1)]?.worker || '';
}

export const page = {
  title: 'Jobs',
  path: '/jobs',
  nav: 'jobs',
  async mount(root, ctx) {
    const inputs = {};
    const select = (name, label, options, testid) =>
      (inputs[name] = h(
        'select',
        {'aria-label': label, 'data-testid': testid, value: ctx.query[name] || '', onchange: apply},
        options.map(([v, t]) => h('option', {value: v}, t)),
      ));
    const total = h('span', {class: 'muted num', 'data-testid': 'total', role: 'status'});
    const news = h('button', {
      type: 'button',
      class: 'news primary',
      'data-testid': 'new-jobs',
      hidden: true,
      onclick: () => {
        window.scrollTo(0, 0);
        list.begin();
      },
    });
    let typing;
    inputs.q = h('input', {
      type: 'search',
      class: 'search',
      'aria-label': 'Search jobs',
      placeholder: 'Search  ( / )',
      title: 'Name, beginning or end of the id, tenant, worker, instructions',
      'data-testid': 'search',
      value: ctx.query.q || '',
      autocomplete: 'off',
      spellcheck: 'false',
      oninput: () => {
        clearTimeout(typing);
        typing = setTimeout(apply, 250);
      },
      onkeydown: (e) => {
        if (e.key === 'Enter') {
          clearTimeout(typing);
          apply();
        }
      },
    });
    let status = chips.includes(ctx.query.status) ? ctx.query.status : '';
    const buttons = chips.map((name) =>
      h(
        'button',
        {
          type: 'button',
          class: 'chip',
          'data-testid': 'filter-status-' + (name || 'all'),
          onclick: () => {
            status = name;
            showStatus();
            apply();
          },
        },
        name ? [drawing(name), stateWord(name)] : 'all states',
      ),
    );
    const showStatus = () => buttons.forEach((b, i) => b.setAttribute('aria-pressed', String(chips[i] === status)));
    showStatus();
    const agent = h('button', {
      type: 'button',
      'data-testid': 'filter-agent',
      title: 'Show the jobs of all agents',
      onclick: () => {
        delete ctx.query.agent;
        showAgent();
        apply();
      },
    });
    inputs.dead_letters = h('input', {
      type: 'checkbox',
      checked: Boolean(ctx.query.dead_letters),
      'data-testid': 'filter-letters',
      onchange: apply,
    });
    const named = (name, first) =>
      ctx.query[name]
        ? [
            ['', first],
            [ctx.query[name], visible(ctx.query[name])],
          ]
        : [['', first]];
    replace(
      root,
      h(
        'div',
        {class: 'page-head'},
        h('h1', {tabindex: '-1'}, 'Jobs'),
        total,
        h('div', {class: 'actions'}, ctx.can('submit') ? h('a', {class: 'button', href: '#/submit'}, 'Submit a job') : null),
      ),
      h(
        'div',
        {class: 'filters', role: 'search', 'aria-label': 'Filter jobs'},
        inputs.q,
        select('tenant', 'Tenant', named('tenant', 'All tenants'), 'filter-tenant'),
        select('worker', 'Worker', named('worker', 'All workers'), 'filter-worker'),
        select(
          'order',
          'Order',
          [
            ['', 'Newest first'],
            ['oldest', 'Oldest first'],
          ],
          'order',
        ),
        h('label', {class: 'check'}, inputs.dead_letters, 'Dead letters'),
        agent,
        h('div', {class: 'chips', role: 'group', 'aria-label': 'State', 'data-testid': 'filter-status'}, buttons),
        news,
      ),
    );

    const list = new List(ctx, {total, news});
    append(root, list.box, list.foot);
    const showAgent = () => {
      agent.hidden = !ctx.query.agent;
      setText(agent, 'Agent ' + visible(ctx.query.agent || '') + ' \u00d7');
    };
    showAgent();

    function values() {
      return {
        q: inputs.q.value.trim(),
        agent: ctx.query.agent || '',
        status,
        tenant: inputs.tenant.value,
        worker: inputs.worker.value,
        order: inputs.order.value,
        dead_letters: inputs.dead_letters.checked ? '1' : '',
      };
    }
    function apply() {
      ctx.setQuery(values());
      list.filter(values());
    }
    ctx.onquery = (query) => {
      for (const [name, el] of Object.entries(inputs)) {
        if (el.type === 'checkbox') {
          el.checked = Boolean(query[name]);
          continue;
        }
        if (el.tagName === 'SELECT' && query[name] && ![...el.options].some((o) => o.value === query[name]))
          el.append(h('option', {value: query[name]}, visible(query[name])));
        el.value = query[name] || '';
      }
      status = chips.includes(query.status) ? query.status : '';
      showStatus();
      showAgent();
      list.filter(values());
    };
    choices(ctx, inputs);
    await list.filter(values());
    return () => {
      clearTimeout(typing);
      list.close();
    };
  },
};

// choices fills the filters with the tenants and workers that there are.
async function choices(ctx, inputs) {
  const fill = (el, names) => {
    for (const name of names) if (![...el.options].some((o) => o.value === name)) el.append(h('option', {value: name}, visible(name)));
  };
  try {
    const [tenants, workers] = await Promise.all([
      ctx.api.get('/v1/tenants', {signal: ctx.signal}),
      ctx.api.get('/v1/workers', {signal: ctx.signal}),
    ]);
    fill(
      inputs.tenant,
      (tenants.tenants || []).map((t) => t.tenant),
    );
    fill(
      inputs.worker,
      (workers.workers || []).map((w) => w.kind),
    );
  } catch {
    /* what the filters offer is a help and no more */
  }
}

// List is the table: all rows that were fetched, of which those near the window are drawn.
class List {
  constructor(ctx, {total, news}) {
    Object.assign(this, {
      ctx,
      total,
      news,
      rows: [],
      index: new Map(),
      fresh: new Set(),
      where: {},
      next: '',
      loading: null,
      version: 0,
      drawn: new Map(),
    });
    this.top = h('tr', {class: 'spacer', 'aria-hidden': 'true'}, h('td', null));
    this.bottom = h('tr', {class: 'spacer', 'aria-hidden': 'true'}, h('td', null));
    this.body = h('tbody', null, this.top, this.bottom);
    const head = [
      ['State', 'c-state'],
      ['Job', 'c-name'],
      ['Instructions, or why it waits', 'note'],
      ['Tenant', 'c-tenant'],
      ['Worker', 'c-worker'],
      ['Tries', 'c-try right'],
      ['Cost', 'c-cost right'],
      ['Since', 'c-when right'],
    ];
    this.table = h(
      'table',
      {class: 'jobs-table', 'data-testid': 'jobs'},
      h('caption', {class: 'sr-only'}, 'Jobs'),
      h(
        'thead',
        null,
        h(
          'tr',
          {'aria-rowindex': '1'},
          head.map(([t, c]) => h('th', {scope: 'col', class: c}, t)),
        ),
      ),
      this.body,
    );
    this.box = h('section', {class: 'panel jobs-panel', 'aria-label': 'Jobs'}, this.table);
    this.status = h('span');
    this.more = h('button', {type: 'button', hidden: true, 'data-testid': 'more', onclick: () => this.fetch()}, 'Load more');
    this.foot = h('div', {class: 'jobs-foot', role: 'status'}, this.status, this.more);
    const draw = () => this.later();
    window.addEventListener('scroll', draw, {passive: true, signal: ctx.signal});
    window.addEventListener('resize', draw, {signal: ctx.signal});
    ctx.stream.on('job', (u) => this.update(u));
    ctx.stream.on(
      'gap',
      ctx.soon(1000, () => ctx.stream.during(() => this.refresh())),
    );
    this.retell = ctx.soon(400, () => this.tell());
  }

  close() {
    cancelAnimationFrame(this.frame);
    this.load?.abort();
  }

  filter(where) {
    this.where = where;
    return this.begin();
  }

  query() {
    const w = this.where;
    return {
      q: w.q,
      agent: w.agent,
      status: w.status,
      tenant: w.tenant,
      worker: w.worker,
      newest: w.order === 'oldest' ? '' : 'true',
      dead_letters: w.dead_letters ? 'true' : '',
      limit: PAGE,
    };
  }

  // begin fetches the first page anew.
  async begin() {
    this.load?.abort();
    this.loading = null;
    this.version++;
    this.fresh.clear();
    this.tell();
    await this.fetch({first: true});
  }

  fetch(which) {
    return this.ctx.stream.during(() => this.fetchPage(which));
  }

  async fetchPage({first = false} = {}) {
    if (this.loading || (!first && !this.next)) return;
    const version = this.version;
    this.load = new AbortController();
    this.ctx.signal.addEventListener('abort', () => this.load.abort(), {once: true});
    this.loading = this.ctx.api.get('/v1/jobs', {query: {...this.query(), cursor: first ? '' : this.next}, signal: this.load.signal});
    this.tell();
    try {
      const answer = await this.loading;
      if (version !== this.version) return;
      if (first) {
        this.rows = [];
        this.index.clear();
        this.drawn.forEach((d) => d.el.remove());
        this.drawn.clear();
        this.count = answer.total;
      }
      for (const e of answer.jobs || []) this.put(slim(e));
      this.next = answer.next || '';
      this.broken = false;
      this.table.setAttribute('aria-rowcount', String(this.next ? -1 : this.rows.length + 1));
    } catch (error) {
      if (error.name === 'AbortError') return;
      if (first && !this.rows.length) this.count = 0;
      this.broken = true;
      failed(error, 'The jobs could not be fetched');
    } finally {
      if (version === this.version) {
        this.loading = null;
        this.tell();
      }
    }
    this.later();
  }

  put(row) {
    const at = this.index.get(row.id);
    if (at !== undefined) {
      this.rows[at] = row;
      return;
    }
    this.index.set(row.id, this.rows.length);
    this.rows.push(row);
  }

  // refresh reads again the jobs that are seen, after something was missed.
  async refresh() {
    const scrolled = window.scrollY > 200;
    if (!scrolled) return this.begin();
    const [from, to] = this.range();
    const ids = this.rows.slice(from, to).map((r) => r.id);
    for (const id of ids) {
      try {
        const {job} = await this.ctx.api.get(this.ctx.path`/v1/jobs/${id}`, {signal: this.ctx.signal});
        if (this.index.has(id)) this.rows[this.index.get(id)] = slim(job);
      } catch (error) {
        if (error.name === 'AbortError') return;
      }
    }
    this.later();
  }

  // update takes what the stream tells: a row changes in its place, a job that is not
  // here is counted and not put in, since that would move what is being read.
  update(u) {
    if (!u?.job) return;
    const at = this.index.get(u.job);
    if (at === undefined) {
      const w = this.where;
      if (
        (w.tenant && w.tenant !== u.tenant) ||
        (w.worker && w.worker !== u.worker) ||
        w.q ||
        w.agent ||
        w.dead_letters ||
        (w.status && w.status !== stateOfUpdate(u))
      )
        return;
      if (this.next && w.order === 'oldest') return; // it comes at the end, when that is reached
      if (u.attempt > 1 || !['queued', 'dispatched'].includes(u.entry_state)) return;
      if (this.fresh.size < NEWS && !this.fresh.has(u.job)) {
        this.fresh.add(u.job);
        this.retell();
      }
      return;
    }
    const old = this.rows[at];
    const state = stateOfUpdate(u);
    const row = {
      ...old,
      state,
      attempts: u.attempt || old.attempts,
      worker: u.worker || old.worker,
      why: u.text ? firstLine(u.text) : state === old.state ? old.why : '',
      cost: u.usage ? cost(u.usage) : old.cost,
      at: u.time || old.at,
      changed: performance.now(),
    };
    this.rows[at] = row;
    this.later();
  }

  tell() {
    setText(this.total, this.count === undefined || this.count < 0 ? '' : plural(Math.max(this.count, this.rows.length), 'job'));
    const n = this.fresh.size;
    this.news.hidden = n === 0;
    if (n) setText(this.news, (n >= NEWS ? count(NEWS) + ' or more new jobs' : plural(n, 'new job')) + ': show');
    const end = !this.rows.length ? 'No jobs match.' : this.next ? count(this.rows.length) + ' loaded.' : '';
    setText(this.status, this.broken ? 'The jobs could not be fetched.' : this.loading ? 'Loading\u2026' : end);
    this.more.hidden = !this.next || Boolean(this.loading);
    this.box.hidden = !this.rows.length;
  }

  later() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = undefined;
      this.draw();
    });
  }

  height() {
    return parseFloat(getComputedStyle(document.documentElement).getPropertyValue('--row')) || 41;
  }

  // range returns the rows that are near the window: from, to.
  range() {
    const height = this.height();
    const above = -this.body.getBoundingClientRect().top;
    const from = Math.max(0, Math.floor(above / height) - AHEAD);
    return [
      Math.min(from, this.rows.length),
      Math.min(this.rows.length, Math.max(0, Math.ceil((above + window.innerHeight) / height)) + AHEAD),
    ];
  }

  draw() {
    const [from, to] = this.range();
    const height = this.height();
    const keep = new Map();
    let before = this.top;
    for (let i = from; i < to; i++) {
      const row = this.rows[i];
      let d = this.drawn.get(row.id);
      if (!d || d.row !== row) {
        const had = d?.el;
        const el = this.line(row, i);
        if (had) {
          const focused = had.contains(document.activeElement);
          had.replaceWith(el);
          if (focused) el.querySelector('a')?.focus({preventScroll: true});
          if (d.row.state !== row.state) el.classList.add('changed');
        }
        d = {row, el};
      }
      d.el.setAttribute('aria-rowindex', String(i + 2));
      if (before.nextSibling !== d.el) before.after(d.el);
      before = d.el;
      keep.set(row.id, d);
    }
    for (const [id, d] of this.drawn) if (!keep.has(id)) d.el.remove();
    this.drawn = keep;
    this.top.style.setProperty('--h', from * height + 'px');
    this.bottom.style.setProperty('--h', (this.rows.length - to) * height + 'px');
    if (this.next && !this.loading && !this.broken && to + PAGE / 4 >= this.rows.length) this.fetch();
  }

  line(r) {
    const go = (event) => {
      if (event.target.closest('a') || event.button !== 0 || event.ctrlKey || event.metaKey || String(getSelection())) return;
      location.hash = link`/jobs/${r.id}`;
    };
    return h(
      'tr',
      {'data-key': r.id, 'data-testid': 'job-row', 'data-state': r.state, onclick: go},
      h('td', {class: 'c-state'}, badge(r.state)),
      h('th', {scope: 'row', class: 'c-name'}, jobLink(r.id, r.name)),
      h('td', {class: 'note', title: visible(r.why || r.what)}, visible(r.why || r.what)),
      h('td', {class: 'c-tenant'}, h('bdi', null, visible(r.tenant))),
      h('td', {class: 'c-worker'}, h('bdi', null, visible(r.worker))),
      h('td', {class: 'c-try num right'}, r.attempts || ''),
      h('td', {class: 'c-cost num right'}, r.attempts ? r.cost : ''),
      h('td', {class: 'c-when right'}, timeOf(r.at)),
    );
  }
}
