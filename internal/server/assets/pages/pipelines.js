// Pipelines: how their stages stand, and the events that flow through one of them.
//
// data-testid: pipelines, pipeline (data-key), stage (data-stage, data-state), stage-lag, stage-replay, pipeline-letters,
// events, event-row (data-key is the number), event-data, events-follow, events-older, events-latest, events-more,
// filter-type, filter-stage, pipeline-rerun, pipeline-replays

import {
  ask,
  badge,
  clockTime,
  count,
  firstLine,
  h,
  icon,
  link,
  panel,
  plural,
  replace,
  setText,
  shortId,
  table,
  timeOf,
  toast,
  visible,
} from '../dom.js';

const PAGE = 100; // events of a call and of a table
const MOST_SCANNED = 3000; // events that are looked through for those that a filter wants
const FOLLOW = 2000; // ms

export const page = {
  title: (ctx) => ctx.params.pipeline || 'Pipelines',
  path: ['/pipelines', '/pipelines/:pipeline'],
  nav: 'pipelines',
  mount: (root, ctx) => (ctx.params.pipeline ? mountOne(root, ctx) : mountList(root, ctx)),
};

// ---- All pipelines ----

async function mountList(root, ctx) {
  const box = h('div', {class: 'pipelines', 'data-testid': 'pipelines'});
  replace(root, h('h1', {tabindex: '-1'}, 'Pipelines'), box);
  const load = async () => {
    const pipelines = (await ctx.api.get('/v1/pipelines', {signal: ctx.signal})).pipelines || [];
    const seen = new Set();
    replace(
      box,
      pipelines.length
        ? pipelines.map((p) => {
            const name = seen.has(p.id) ? p.batch : p.id; // the name alone means the newest of that name
            seen.add(p.id);
            return h(
              'section',
              {
                class: 'panel',
                'data-testid': 'pipeline',
                'data-key': p.batch + '/' + p.id,
                'aria-label': `${visible(p.id)} of workflow ${shortId(p.batch)}`,
              },
              h(
                'header',
                {class: 'panel-head'},
                h('h2', null, h('a', {href: link`/pipelines/${name}`, 'data-key': p.batch}, h('bdi', null, visible(p.id)))),
                h(
                  'span',
                  {class: 'muted'},
                  timeOf(p.created_at),
                  ' \u00b7 ',
                  h('a', {href: link`/workflows/${p.batch}`}, 'workflow ', shortId(p.batch)),
                ),
              ),
              replays(p),
              stages(p),
            );
          })
        : h('p', {class: 'empty'}, 'No pipelines yet. A job file with the section pipelines has some.'),
    );
  };
  await load();
  const again = ctx.soon(2000, () => load().catch(() => {}));
  for (const kind of ['job', 'gap']) ctx.stream.on(kind, again);
}

// stateOfStage returns how a stage stands: failed, ended, working, waiting (events lie
// before it and none is at work) or idle.
export function stateOfStage(stage) {
  if (stage.failed) return 'failed';
  if (stage.ended) return 'ended';
  if (stage.units?.length) return 'working';
  return stage.backlog > 0 ? 'waiting' : 'idle';
}

const tones = {failed: 'bad', ended: 'good', working: 'run', waiting: 'ask', idle: 'idle', recorded: 'idle'};

// replays says what a run replays of an earlier one; null of one that replays none.
const replays = (p) =>
  p.replays
    ? h(
        'p',
        {class: 'small muted wrap', 'data-testid': 'pipeline-replays'},
        'Replays ',
        h('a', {href: link`/pipelines/${p.replays.batch}`}, 'run ', shortId(p.replays.batch)),
        ' from stage ',
        h('bdi', null, visible(p.replays.stage)),
        ' on: ',
        types(p.replays.types),
      )
    : null;

// stages draws the stages of a pipeline in their order; replay adds a button.
function stages(p, replay) {
  const most = Math.max(1, ...(p.stages || []).map((st) => st.backlog || 0));
  const first = (p.stages || []).findIndex((st) => st.stage === p.replays?.stage); // that runs again
  return h(
    'ol',
    {class: 'stages'},
    (p.stages || []).map((st, i) => {
      const state = i < first ? 'recorded' : stateOfStage(st);
      const lag = st.backlog || 0;
      return h(
        'li',
        {class: ['stage', 'tone-' + tones[state]], 'data-testid': 'stage', 'data-stage': st.stage, 'data-state': state},
        i ? h('span', {class: 'stage-arrow', 'aria-hidden': 'true'}, icon('more')) : null,
        h(
          'div',
          {class: 'stage-head'},
          h('strong', {class: 'wrap'}, h('bdi', null, visible(st.stage))),
          badge(state, {tone: tones[state]}),
        ),
        h(
          'p',
          {class: 'stage-lag', 'data-testid': 'stage-lag'},
          h('span', {class: 'stage-number'}, count(lag)),
          lag === 1 ? ' event behind' : ' events behind',
        ),
        h(
          'div',
          {class: 'bar', 'aria-hidden': 'true', style: {'--part': ((100 * lag) / most).toFixed(1) + '%'}},
          h('span', {class: 'bar-fill'}),
        ),
        h(
          'p',
          {class: 'small muted'},
          i < first
            ? 'did not run again'
            : [i === 0 && !st.subscribes?.length ? 'given the seed' : `done up to ${count(st.acked)}`, `, ${count(st.published)} published`],
          st.units?.length ? `, ${plural(st.units.length, 'part')} at work` : '',
        ),
        st.subscribes?.length ? h('p', {class: 'small muted wrap'}, 'takes ', types(st.subscribes)) : null,
        st.publishes?.length ? h('p', {class: 'small muted wrap'}, 'makes ', types(st.publishes)) : null,
        st.dead ? h('p', null, badge('dead', {tone: 'bad', label: plural(st.dead, 'dead letter')})) : null,
        st.failed ? h('p', {class: 'small wrap stage-failed'}, visible(firstLine(st.failed, 160))) : null,
        replay && i >= first
          ? h(
              'button',
              {
                type: 'button',
                class: 'ghost stage-replay',
                id: 'replay-' + st.stage,
                'data-testid': 'stage-replay',
                'aria-label': 'Replay stage ' + st.stage,
                onclick: () => replay(st),
              },
              'Replay\u2026',
            )
          : null,
      );
    }),
  );
}

const types = (list) => h('span', {class: 'mono'}, visible(list.join(', ')));

// ---- One of them ----

async function mountOne(root, ctx) {
  const view = new Line(ctx);
  await view.load();
  replace(root, view.parts());
  await view.latest().catch((error) => view.problem(error));
  const again = ctx.soon(1500, () => view.load().catch(() => {}));
  for (const kind of ['job', 'gap']) ctx.stream.on(kind, again);
  ctx.every(FOLLOW, () => view.tail());
}

class Line {
  constructor(ctx) {
    this.ctx = ctx;
    this.events = []; // in their order
    this.first = 0; // the number before the first event that was looked at
    this.last = 0; // the number of the last event that was looked at
    this.busy = false;
    this.build();
  }

  build() {
    this.heading = h('h1', {tabindex: '-1'});
    this.about = h('span', {class: 'muted'});
    this.origin = h('div');
    this.again = h(
      'button',
      {type: 'button', class: 'ghost', 'data-testid': 'pipeline-rerun', onclick: () => this.rerun()},
      'Replay in a new run\u2026',
    );
    this.stageBox = h('div');
    this.letterBox = h('div');
    const filter = (name, label) =>
      h(
        'select',
        {'aria-label': label, 'data-testid': 'filter-' + name, onchange: () => this.latest().catch((error) => this.problem(error))},
        h('option', {value: ''}, label),
      );
    this.type = filter('type', 'Every type');
    this.stage = filter('stage', 'Every stage');
    this.follow = h('input', {
      type: 'checkbox',
      id: 'events-follow',
      checked: true,
      'data-testid': 'events-follow',
      onchange: () => this.tail(),
    });
    this.from = h('input', {
      type: 'number',
      min: 0,
      step: 1,
      id: 'events-from',
      class: 'events-from',
      placeholder: 'After no.',
      'aria-label': 'Show events after this number',
      'data-testid': 'events-after',
      onchange: () => {
        if (this.from.value !== '') {
          this.follow.checked = false;
          this.at(Number(this.from.value)).catch((error) => this.problem(error));
        }
      },
    });
    this.note = h('p', {class: 'small muted', role: 'status'});
    this.body = h('tbody');
    this.older = h(
      'button',
      {type: 'button', 'data-testid': 'events-older', onclick: () => this.back().catch((error) => this.problem(error))},
      'Earlier events',
    );
    this.newer = h(
      'button',
      {type: 'button', 'data-testid': 'events-more', onclick: () => this.more().catch((error) => this.problem(error))},
      'Later events',
    );
    this.newest = h(
      'button',
      {
        type: 'button',
        class: 'ghost',
        'data-testid': 'events-latest',
        onclick: () => {
          this.follow.checked = true;
          this.latest().catch((error) => this.problem(error));
        },
      },
      'Latest',
    );
    this.empty = h('p', {class: 'empty'}, 'No event fits.');
  }

  parts() {
    return [
      h(
        'div',
        {class: 'page-head'},
        h('div', null, h('p', {class: 'crumb'}, h('a', {href: '#/pipelines'}, 'Pipelines')), this.heading),
        this.about,
        this.ctx.can('operate') ? this.again : null,
      ),
      this.origin,
      panel('Stages', {}, this.stageBox),
      this.letterBox,
      panel(
        'Events',
        {actions: [this.type, this.stage, this.from, h('label', {class: 'check', for: 'events-follow'}, this.follow, 'Follow')]},
        h('div', {class: 'events-nav'}, this.older, this.note),
        (this.box = h(
          'div',
          {class: 'table-box cards events-box', tabindex: '0', role: 'region', 'aria-label': 'Table of events'},
          h(
            'table',
            {class: 'events', 'data-testid': 'events'},
            h('caption', {class: 'sr-only'}, 'Events in their order'),
            h(
              'thead',
              null,
              h(
                'tr',
                null,
                ['Number', 'Time', 'Type', 'From', 'For', 'Data'].map((t) => h('th', {scope: 'col'}, t)),
              ),
            ),
            this.body,
          ),
        )),
        this.empty,
        h('div', {class: 'events-nav'}, this.newer, this.newest),
      ),
    ];
  }

  problem(error) {
    if (error.name !== 'AbortError') setText(this.note, visible(error.detail || error.message));
  }

  get route() {
    return this.ctx.path`/v1/pipelines/${this.ctx.params.pipeline}/events`;
  }

  async load() {
    const {pipelines} = await this.ctx.api.get('/v1/pipelines', {signal: this.ctx.signal, query: {name: this.ctx.params.pipeline}});
    const p = pipelines?.[0];
    if (!p) throw Object.assign(new Error(`There is no pipeline ${visible(this.ctx.params.pipeline)}.`), {name: 'Problem', title: 'No such pipeline'});
    this.pipeline = p;
    this.ctx.setTitle(visible(p.id));
    setText(this.heading, visible(p.id));
    replace(this.about, timeOf(p.created_at), ' \u00b7 ', h('a', {href: link`/workflows/${p.batch}`}, 'workflow ', shortId(p.batch)));
    replace(this.origin, replays(p));
    replace(this.stageBox, stages(p, this.ctx.can('operate') ? (st) => (st.ended || st.failed ? this.rerun(st.stage) : this.replay(st)) : null));
    this.showLetters();
    this.options(
      this.stage,
      (p.stages || []).map((st) => st.stage),
    );
  }

  // options adds what a select does not offer yet.
  options(select, values) {
    const there = new Set([...select.options].map((o) => o.value));
    for (const value of values) {
      if (!value || there.has(value)) continue;
      there.add(value);
      select.append(h('option', {value}, visible(value)));
    }
  }

  showLetters() {
    const letters = this.pipeline.dead_letters || [];
    const open = new Set([...this.letterBox.querySelectorAll('details[open]')].map((d) => d.dataset.key));
    replace(
      this.letterBox,
      letters.length
        ? panel(
            'Dead letters',
            {note: 'A replay of the stage from the event gives it again.'},
            table({
              caption: 'Events that a stage could not handle',
              testid: 'pipeline-letters',
              rows: letters,
              key: (d) => d.stage + d.event.seq,
              columns: [
                {title: 'Stage', head: true, cell: (d) => h('bdi', null, visible(d.stage))},
                {
                  title: 'Event',
                  class: 'num',
                  cell: (d) =>
                    h(
                      'button',
                      {
                        type: 'button',
                        class: 'link',
                        onclick: () => {
                          this.follow.checked = false;
                          this.at(d.event.seq - 1).catch((error) => this.problem(error));
                        },
                      },
                      `${d.event.seq}`,
                    ),
                },
                {title: 'Class', cell: (d) => badge('failed', {label: String(d.class).toLowerCase().replaceAll('_', ' ')})},
                {title: 'Why', class: 'grow wrap', cell: (d) => h('span', {class: 'wrap'}, visible(d.message))},
                {title: 'Attempts', class: 'num', cell: (d) => d.attempts},
                {title: 'Given up', cell: (d) => timeOf(d.at)},
              ],
            }),
          )
        : null,
    );
    for (const d of this.letterBox.querySelectorAll('details')) d.open = open.has(d.dataset.key);
  }

  // ---- Events ----

  wanted(e) {
    return (!this.type.value || e.type === this.type.value) && (!this.stage.value || e.stage === this.stage.value);
  }

  // read returns up to a page of wanted events after a number, and how far it looked.
  async read(after) {
    const found = [];
    let at = after,
      end = false;
    for (let scanned = 0; found.length < PAGE && scanned < MOST_SCANNED && !end;) {
      const events = (await this.ctx.api.get(this.route, {signal: this.ctx.signal, query: {after: at, limit: PAGE}})).events || [];
      this.options(
        this.type,
        events.map((e) => e.type),
      );
      found.push(...events.filter((e) => this.wanted(e)));
      scanned += events.length;
      end = events.length < PAGE;
      if (events.length) at = events.at(-1).seq;
    }
    return {found, at, end};
  }

  // only lets one reading happen at a time; a later one that somebody asks for waits.
  async only(f) {
    while (this.busy) await this.busy;
    let done;
    this.busy = new Promise((resolve) => {
      done = resolve;
    });
    try {
      await f();
    } finally {
      this.busy = null;
      done();
    }
  }

  at(after) {
    return this.only(async () => {
      const {found, at, end} = await this.read(after);
      Object.assign(this, {events: found, first: after, last: at, end});
      this.show();
    });
  }

  // latest shows the newest events: what all stages have published says how many
  // there are about; then it looks on to the end.
  latest() {
    const about = (this.pipeline.stages || []).reduce((sum, st) => sum + (st.published || 0), 0);
    return this.only(async () => {
      let first = Math.max(0, about - PAGE),
        events = [],
        at = first,
        end = false;
      while (!end) {
        const next = await this.read(at);
        events = [...events, ...next.found].slice(-PAGE);
        ({at, end} = next);
      }
      if (events.length < PAGE && this.type.value + this.stage.value) {
        const filtered = await this.before(first, PAGE - events.length);
        events = [...filtered.found, ...events];
        first = filtered.first;
      }
      Object.assign(this, {events, first: events.length === PAGE ? events[0].seq - 1 : first, last: at, end});
      this.show();
    });
  }

  // before returns the last n wanted events up to a number, and the number before them.
  async before(upto, n) {
    let first = upto,
      found = [];
    for (let scanned = 0; first > 0 && found.length < n && scanned < MOST_SCANNED; scanned += PAGE) {
      const from = Math.max(0, first - PAGE);
      const events =
        (await this.ctx.api.get(this.route, {signal: this.ctx.signal, query: {after: from, limit: first - from}})).events || [];
      this.options(
        this.type,
        events.map((e) => e.type),
      );
      found = [...events.filter((e) => this.wanted(e)), ...found];
      first = from;
    }
    return {found, first};
  }

  back() {
    return this.only(async () => {
      this.follow.checked = false;
      const {found, first} = await this.before(this.first, PAGE);
      this.events = [...found, ...this.events];
      this.first = first;
      this.show();
    });
  }

  more() {
    return this.only(async () => {
      const {found, at, end} = await this.read(this.last);
      this.events = [...this.events, ...found];
      Object.assign(this, {last: at, end});
      this.show();
    });
  }

  // tail adds what has come since, while somebody follows.
  tail() {
    if (!this.follow.checked || this.busy || !this.pipeline) return;
    this.only(async () => {
      const {found, at, end} = await this.read(this.last);
      if (!found.length && at === this.last) return;
      this.events = [...this.events, ...found].slice(-5 * PAGE);
      Object.assign(this, {last: at, end, first: this.events.length >= 5 * PAGE ? this.events[0].seq - 1 : this.first});
      this.show();
    }).catch(() => {});
  }

  show() {
    const below = !this.box || this.box.scrollHeight - this.box.scrollTop - this.box.clientHeight < 40;
    const there = new Map([...this.body.children].map((row) => [row.dataset.key, row]));
    replace(
      this.body,
      this.events.map((e) => there.get(String(e.seq)) || this.row(e)),
    );
    if (this.box && this.follow.checked && below) this.box.scrollTop = this.box.scrollHeight;
    this.empty.hidden = this.events.length > 0;
    this.older.hidden = this.first <= 0;
    this.newer.hidden = Boolean(this.end);
    setText(
      this.note,
      this.events.length
        ? `${plural(this.events.length, 'event')}, ${count(this.events[0].seq)} to ${count(this.events.at(-1).seq)}`
        : `looked through ${count(this.first)} to ${count(this.last)}`,
    );
  }

  row(e) {
    const cell = (label, props, ...children) => h('td', {'data-label': label, ...props}, ...children);
    return h(
      'tr',
      {'data-key': String(e.seq), 'data-testid': 'event-row'},
      h('th', {scope: 'row', class: 'num', 'data-label': 'Number'}, count(e.seq)),
      cell('Time', null, h('time', {datetime: e.time, title: e.time}, clockTime(e.time))),
      cell('Type', {class: 'mono wrap'}, h('span', null, visible(e.type))),
      cell('From', null, h('bdi', null, visible(e.stage || 'seed'))),
      cell(
        'For',
        {class: 'num events-for'},
        e.for?.length ? h('span', {title: e.for.length > 3 ? 'The events ' + e.for.slice(0, 100).join(', ') : null}, answered(e.for)) : '\u2013',
      ),
      cell('Data', {class: 'grow'}, data(e.data)),
    );
  }

  // rerun gives recorded events to the stages again, in a new run.
  async rerun(stage = '') {
    const p = this.pipeline;
    const number = (text, label) => {
      if (text === '') return undefined;
      if (!Number.isInteger(Number(text)) || Number(text) < 1) throw new Error(`${label}: want a whole number from 1.`);
      return Number(text);
    };
    let run = null;
    const done = await ask({
      title: `Replay ${visible(p.id)} in a new run?`,
      confirm: 'Replay',
      testid: 'dialog-rerun',
      text: 'The first stage and those behind it run again, on what the stages before it have published. This run stays as it is.',
      fields: [
        {
          name: 'stage',
          label: 'First stage',
          type: 'select',
          value: stage,
          options: [['', 'The first that takes one of the types'], ...p.stages.map((st) => [st.stage, visible(st.stage)])],
        },
        {name: 'types', label: 'Only events of these types', hint: 'Separated by commas; empty: all that these stages take.'},
        {name: 'from', label: 'From event number', type: 'number', props: {min: 1, step: 1}},
        {name: 'to', label: 'To event number', type: 'number', props: {min: 1, step: 1}},
      ],
      run: async (v) => {
        const only = v.types
          .split(',')
          .map((t) => t.trim())
          .filter(Boolean);
        run = await this.ctx.api.post(this.ctx.path`/v1/pipelines/${this.ctx.params.pipeline}/runs`, {
          stage: v.stage || undefined,
          types: only.length ? only : undefined,
          from: number(v.from, 'From event number'),
          to: number(v.to, 'To event number'),
        });
      },
    });
    if (!done) return;
    toast(`${plural(run.events, 'event')} ${run.events === 1 ? 'is' : 'are'} replayed.`);
    location.hash = link`/pipelines/${run.batch}`;
  }

  async replay(st) {
    let answer = null;
    const name = this.ctx.params.pipeline;
    const letter = (this.pipeline.dead_letters || []).find((d) => d.stage === st.stage);
    const values = await ask({
      title: `Replay stage ${visible(st.stage)}?`,
      confirm: 'Replay',
      testid: 'dialog-replay',
      text: 'It is given its events again, from a number on. What is at work is stopped. What it has published for them is in the log already and is not published twice, unless you say so.',
      fields: [
        {
          name: 'from',
          label: 'From event number',
          type: 'number',
          value: letter ? letter.event.seq : 1,
          required: true,
          props: {min: 1, step: 1},
        },
        {name: 'again', label: 'Publish its outputs a second time', type: 'checkbox'},
      ],
      run: async (v) => {
        if (!Number.isInteger(Number(v.from)) || Number(v.from) < 1) throw new Error('From event number: want a whole number from 1.');
        answer = await this.ctx.api.post(this.ctx.path`/v1/pipelines/${name}/replay`, {
          stage: st.stage,
          from: Number(v.from),
          again: v.again || undefined,
        });
      },
    });
    if (!values) return;
    toast(`Stage ${firstLine(st.stage, 60)} goes on from event ${answer.first}.`);
    await this.load().catch(() => {});
  }
}

// answered names the events that an event answers: three of them, and how many more.
function answered(numbers) {
  const more = numbers.length - 3;
  return numbers.slice(0, 3).join(', ') + (more > 0 ? ` and ${count(more)} more` : '');
}

// data shows a beginning of what an event carries; unfolded all of it.
function data(value) {
  if (value === undefined || value === null) return h('span', {class: 'muted'}, '\u2013');
  const short = visible(JSON.stringify(value));
  if (short.length <= 60) return h('code', {class: 'wrap'}, short);
  const pre = h('pre', {class: 'prose', tabindex: '0'});
  return h(
    'details',
    {
      'data-testid': 'event-data',
      ontoggle: () => {
        if (!pre.textContent) pre.textContent = visible(JSON.stringify(value, null, 2));
      },
    },
    h('summary', null, h('code', null, firstLine(short, 72))),
    pre,
  );
}
