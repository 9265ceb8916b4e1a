// Dead letters: jobs that were given up and wait for somebody.
//
// data-testid: letters, letter-row (data-key is the job's id), letter-select, letters-select-all, letters-selected,
// letters-requeue, letters-drop, letters-more, filter-class, filter-tenant, filter-worker, filter-age, filter-grep

import {ask, badge, count, firstLine, h, jobLink, plural, replace, setText, table, timeOf, toast, visible} from '../dom.js';

const CLASSES = [
  'RATE_LIMIT',
  'SERVER',
  'NETWORK',
  'TIMEOUT',
  'STALLED',
  'CRASH',
  'INVALID_OUTPUT',
  'RESOURCE_EXHAUSTED',
  'AUTH',
  'CONFLICT',
  'VERIFY_FAILED',
  'HUMAN_REJECTED',
  'BUDGET',
  'SANDBOX',
  'CANCELLED',
  'CONFIG',
  'UNKNOWN',
];
const AGES = [
  ['', 'Any age'],
  ['newer:1h', 'Less than an hour ago'],
  ['newer:24h', 'Less than a day ago'],
  ['newer:168h', 'Less than a week ago'],
  ['older:1h', 'More than an hour ago'],
  ['older:24h', 'More than a day ago'],
  ['older:168h', 'More than a week ago'],
];
const FILTERS = ['class', 'tenant', 'worker', 'age', 'grep'];
const PAGE = 100,
  MOST = 1000; // rows

export const page = {
  title: 'Dead letters',
  path: ['/letters', '/dead-letters'],
  nav: 'letters',
  async mount(root, ctx) {
    const view = new Letters(ctx);
    await view.load();
    replace(root, view.parts());
    const again = ctx.soon(2000, () => view.load().catch(() => {}));
    for (const kind of ['job', 'gap']) ctx.stream.on(kind, again);
    ctx.onquery = () => {
      view.read();
      view.load().catch((error) => view.problem(error));
    };
  },
};

class Letters {
  constructor(ctx) {
    this.ctx = ctx;
    this.limit = PAGE;
    this.letters = [];
    this.total = 0;
    this.chosen = new Set(); // ids
    this.boxes = new Map(); // id → checkbox
    this.build();
    this.read();
  }

  build() {
    const set = (name) => (event) => {
      this.choose(name, event.target.value);
    };
    const input = (name, label, list) =>
      h('input', {
        type: 'search',
        placeholder: label,
        'aria-label': label,
        'data-testid': 'filter-' + name,
        list,
        autocomplete: 'off',
        onchange: set(name),
        onsearch: set(name),
      });
    this.controls = {
      grep: input('grep', 'Name, reason or instructions (a regular expression)'),
      class: h(
        'select',
        {'aria-label': 'Class of failure', 'data-testid': 'filter-class', onchange: set('class')},
        h('option', {value: ''}, 'Any class'),
        CLASSES.map((c) => h('option', {value: c}, words(c))),
      ),
      tenant: input('tenant', 'Any tenant', 'letters-tenants'),
      worker: input('worker', 'Any worker', 'letters-workers'),
      age: h(
        'select',
        {'aria-label': 'Age', 'data-testid': 'filter-age', onchange: set('age')},
        AGES.map(([value, label]) => h('option', {value}, label)),
      ),
    };
    this.tenants = h('datalist', {id: 'letters-tenants'});
    this.workers = h('datalist', {id: 'letters-workers'});
    this.wrong = h('p', {class: 'field-problem', role: 'alert'});
    this.status = h('p', {class: 'muted', role: 'status', 'data-testid': 'letters-selected'});
    this.all = h('input', {type: 'checkbox', id: 'letters-all', 'data-testid': 'letters-select-all', onchange: () => this.chooseAll()});
    this.requeueButton = h(
      'button',
      {type: 'button', class: 'primary', 'data-testid': 'letters-requeue', onclick: () => this.requeue()},
      'Requeue\u2026',
    );
    this.dropButton = h(
      'button',
      {type: 'button', class: 'danger', 'data-testid': 'letters-drop', onclick: () => this.drop()},
      'Drop\u2026',
    );
    this.bar = h(
      'div',
      {class: 'letters-bar'},
      h('label', {class: 'check', for: 'letters-all'}, this.all, 'All shown'),
      this.status,
      h('div', {class: 'actions'}, this.dropButton, this.requeueButton),
    );
    this.box = h('div');
    this.more = h(
      'button',
      {
        type: 'button',
        'data-testid': 'letters-more',
        onclick: () => {
          this.limit = Math.min(MOST, this.limit * 2);
          this.load().catch((error) => this.problem(error));
        },
      },
      'Show more',
    );
  }

  parts() {
    const may = this.ctx.can('operate');
    return [
      h('div', {class: 'page-head'}, h('h1', {tabindex: '-1'}, 'Dead letters'), this.found),
      h(
        'form',
        {class: 'letters-filters', role: 'search', 'aria-label': 'Filter dead letters', onsubmit: (event) => event.preventDefault()},
        FILTERS.map((name) => this.controls[name]).sort((a, b) => (b === this.controls.grep) - (a === this.controls.grep)),
        this.tenants,
        this.workers,
      ),
      this.wrong,
      h(
        'div',
        {class: 'panel'},
        may ? this.bar : h('p', {class: 'muted'}, `Requeue and drop need the role operate; yours is ${this.ctx.me.role}.`),
        this.box,
        this.more,
      ),
      h(
        'p',
        {class: 'small muted'},
        'To change a job before it runs again, use the command line: ',
        h('code', null, 'scheduler dlq edit JOB'),
        '.',
      ),
    ];
  }

  // read takes the filters from the address.
  read() {
    for (const name of FILTERS) this.controls[name].value = this.ctx.query[name] || '';
  }

  choose(name, value) {
    if ((this.ctx.query[name] || '') === value) return;
    this.ctx.setQuery({...this.ctx.query, [name]: value});
    this.limit = PAGE;
    this.load().catch((error) => this.problem(error));
  }

  problem(error) {
    if (error.name === 'AbortError') return;
    this.wrong.textContent = visible(error.detail || error.message);
  }

  async load() {
    const {age, ...query} = this.ctx.query;
    const [side, long] = String(age || '').split(':');
    if (long) query[side] = long;
    const turn = (this.turn = (this.turn || 0) + 1);
    const {jobs, total} = await this.ctx.api.get('/v1/dead-letters', {signal: this.ctx.signal, query: {...query, limit: this.limit}});
    if (turn !== this.turn) return; // a later question was asked meanwhile
    this.wrong.textContent = '';
    this.letters = jobs || [];
    this.total = total ?? this.letters.length;
    const there = new Set(this.letters.map((e) => e.id));
    for (const id of this.chosen) if (!there.has(id)) this.chosen.delete(id);
    this.show();
  }

  show() {
    const may = this.ctx.can('operate');
    const filtered = FILTERS.some((name) => this.ctx.query[name]);
    const choice = (list, values) =>
      replace(
        list,
        [...new Set(values)].sort().map((value) => h('option', {value})),
      );
    choice(
      this.tenants,
      this.letters.map((e) => e.spec.tenant),
    );
    choice(this.workers, this.letters.map(worker));
    this.boxes.clear();
    this.found ||= h('p', {class: 'muted', role: 'status'});
    setText(
      this.found,
      this.letters.length < this.total
        ? `${count(this.letters.length)} of ${plural(this.total, 'letter')}`
        : this.total
          ? plural(this.total, 'letter')
          : '',
    );
    replace(
      this.box,
      table({
        caption: 'Dead letters, the latest submission first',
        testid: 'letters',
        rows: this.letters,
        key: (e) => e.id,
        rowProps: () => ({'data-testid': 'letter-row'}),
        empty: filtered ? 'No dead letters match.' : 'No dead letters. Jobs that failed for good are listed here.',
        columns: [
          may ? {title: 'Select', class: 'col-select', cell: (e) => this.tickbox(e)} : null,
          {
            title: 'Job',
            head: true,
            cell: (e) =>
              h(
                'div',
                null,
                jobLink(e.id, e.spec.name || e.spec.id),
                h('div', {class: 'muted small'}, h('bdi', null, visible(e.spec.tenant)), ' \u00b7 ', visible(worker(e))),
              ),
          },
          {title: 'Class', cell: (e) => badge('failed', {label: words(e.error_class || 'UNKNOWN')})},
          {title: 'Why', class: 'grow', cell: (e) => reason(e.dead_letter)},
          {title: 'Attempts', class: 'num', cell: (e) => e.attempts || 0},
          {title: 'Given up', cell: (e) => timeOf(e.completed_at || e.created_at)},
        ].filter(Boolean),
      }),
    );
    this.more.hidden = this.letters.length >= this.total || this.limit >= MOST;
    this.bar.hidden = !this.letters.length;
    this.showChosen();
  }

  tickbox(e) {
    const box = h('input', {
      type: 'checkbox',
      id: 'letter-' + e.id,
      'data-testid': 'letter-select',
      checked: this.chosen.has(e.id),
      'aria-label': 'Select ' + firstLine(e.spec.name || e.spec.id),
      onchange: () => {
        if (box.checked) this.chosen.add(e.id);
        else this.chosen.delete(e.id);
        this.showChosen();
      },
    });
    this.boxes.set(e.id, box);
    return box;
  }

  showChosen() {
    const n = this.chosen.size;
    this.all.checked = n > 0 && n === this.letters.length;
    this.all.indeterminate = n > 0 && n < this.letters.length;
    setText(this.status, n ? `${count(n)} selected` : 'none selected');
    this.requeueButton.disabled = this.dropButton.disabled = n === 0;
  }

  chooseAll() {
    const on = this.chosen.size < this.letters.length;
    this.chosen = new Set(on ? this.letters.map((e) => e.id) : []);
    for (const [id, box] of this.boxes) box.checked = this.chosen.has(id);
    this.showChosen();
  }

  async requeue() {
    const ids = [...this.chosen];
    let answer = null;
    const values = await ask({
      title: `Requeue ${plural(ids.length, 'dead letter')}?`,
      confirm: 'Requeue',
      testid: 'dialog-requeue',
      text: 'Each becomes a new job with all its attempts, on its first worker.',
      fields: [{name: 'reset_session', label: 'Start the agents without their sessions', type: 'checkbox'}],
      run: async (v) => {
        answer = await this.ctx.api.post('/v1/dead-letters/requeue', {
          letters: ids.map((id) => ({id})),
          reset_session: v.reset_session || undefined,
        });
      },
    });
    if (!values) return;
    this.chosen.clear();
    if (answer.jobs?.length) toast(`Requeued ${plural(answer.jobs.length, 'job')}.`);
    if (answer.refused?.length)
      toast(`${plural(answer.refused.length, 'letter was', 'letters were')} not requeued.`, {
        tone: 'bad',
        detail: answer.refused.join('\n'),
      });
    await this.load().catch(() => {});
  }

  async drop() {
    const ids = [...this.chosen];
    const values = await ask({
      title: `Drop ${plural(ids.length, 'dead letter')}?`,
      confirm: 'Drop',
      tone: 'bad',
      testid: 'dialog-drop',
      text: 'They are no longer listed here. Their jobs and logs stay.',
      run: () => this.ctx.api.post('/v1/dead-letters/drop', {ids}),
    });
    if (!values) return;
    this.chosen.clear();
    toast(`Dropped ${plural(ids.length, 'letter')}.`);
    await this.load().catch(() => {});
  }
}

const words = (name) => visible(String(name).toLowerCase().replaceAll('_', ' '));

// worker returns what the job ran on last, or was to run on.
function worker(e) {
  const choices = [e.spec.worker, ...(e.spec.fallback || []).map((c) => c.worker)];
  return choices[Math.min(e.choice || 0, choices.length - 1)] || '';
}

// reason shows the first line of why it was given up, and the whole on demand.
function reason(text) {
  const whole = visible(text || '').trim();
  const first = firstLine(whole, 120);
  if (first === whole) return h('span', {class: 'wrap'}, whole || '\u2013');
  return h('details', {class: 'letter-why'}, h('summary', {class: 'wrap'}, first), h('pre', {class: 'prose', tabindex: '0'}, whole));
}
