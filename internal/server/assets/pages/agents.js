// Agents: their profiles and state, and how the reputation of workers, agents and
// tenants has moved.
//
// data-testid: agents, agent-row (data-key is TENANT/NAME), agent-profile, reputations, reputation-row (data-key), reputation-link,
// filter-kind, reputation-detail, reputation-chart, dimensions, dimension (data-dimension)

import {lineChart} from '../chart.js';
import {badge, bar, count, facts, firstLine, h, jobLink, panel, percent, plural, replace, table, timeOf, visible, zero} from '../dom.js';

const DIMENSIONS = [
  ['quality', 'Quality', 'how good it is, in somebody\u2019s judgement'],
  ['adherence', 'Adherence', 'how far it is what was asked for'],
  ['speed', 'Speed', 'time against what was allowed'],
  ['cost', 'Cost', 'cost against what it was to cost'],
  ['error_rate', 'Freedom from errors', 'part of the attempts that did not fail'],
  ['revision_count', 'Few revisions', 'how seldom it had to be done again'],
];
const KINDS = [
  ['', 'All kinds'],
  ['agent', 'Agents'],
  ['worker', 'Workers'],
  ['tenant', 'Tenants'],
];

export const page = {
  title: 'Agents',
  path: '/agents',
  nav: 'agents',
  async mount(root, ctx) {
    const view = new Agents(ctx);
    await view.load();
    replace(root, view.parts());
    view.select().catch(() => {});
    const again = ctx.soon(3000, () =>
      view
        .load()
        .then(() => view.select(true))
        .catch(() => {}),
    );
    for (const kind of ['job', 'gap']) ctx.stream.on(kind, again);
    ctx.every(20000, again); // the answer may be some seconds old
    ctx.onquery = () => {
      view.showReputations();
      view.select().catch(() => {});
    };
  },
};

class Agents {
  constructor(ctx) {
    this.ctx = ctx;
    this.agentBox = h('div');
    this.reputationBox = h('div');
    this.detail = h('div', {'data-testid': 'reputation-detail'});
    this.kind = h(
      'select',
      {'aria-label': 'Kind of subject', 'data-testid': 'filter-kind', onchange: () => this.showReputations()},
      KINDS.map(([value, label]) => h('option', {value}, label)),
    );
    this.shown = '';
  }

  parts() {
    return [
      h('h1', {tabindex: '-1'}, 'Agents'),
      panel('Declared agents', {}, this.agentBox),
      h(
        'div',
        {class: 'reputations'},
        panel('Reputation', {actions: this.kind, note: 'between 0 and 1, the latest work counts most'}, this.reputationBox),
        this.detail,
      ),
    ];
  }

  async load() {
    const [{agents}, {reputations}] = await Promise.all([
      this.ctx.api.get('/v1/agents', {signal: this.ctx.signal}),
      this.ctx.api.get('/v1/reputations', {signal: this.ctx.signal}),
    ]);
    this.agents = agents || [];
    this.reputations = reputations || [];
    this.showAgents();
    this.showReputations();
  }

  showAgents() {
    const open = new Set([...this.agentBox.querySelectorAll('details[open]')].map((d) => d.dataset.key));
    replace(
      this.agentBox,
      table({
        caption: 'Agents by tenant and name',
        testid: 'agents',
        rows: this.agents,
        key: (a) => `${a.tenant}/${a.profile.name}`,
        rowProps: () => ({'data-testid': 'agent-row'}),
        empty: 'No agents are declared. A job file with the section agents declares some.',
        columns: [
          {
            title: 'Agent',
            head: true,
            cell: (a) =>
              h(
                'div',
                null,
                h(
                  'a',
                  {class: 'job-link', href: '#/jobs?' + new URLSearchParams({agent: a.profile.name, tenant: a.tenant})},
                  h('bdi', null, visible(a.profile.name)),
                ),
                h('div', {class: 'muted small'}, h('bdi', null, visible(a.tenant))),
              ),
          },
          {title: 'State', cell: (a) => (a.state ? badge(a.state) : h('span', {class: 'muted'}, 'no job yet'))},
          {title: 'Worker', cell: (a) => visible([a.profile.worker, a.profile.model].filter(Boolean).join(' \u00b7 ')) || '\u2013'},
          {title: 'May', cell: (a) => tags(a.profile.capabilities)},
          {title: 'Domains', cell: (a) => (a.profile.domains?.length ? tags(a.profile.domains) : h('span', {class: 'muted'}, 'any'))},
          {title: 'Jobs', class: 'num', cell: (a) => count(a.jobs)},
          {
            title: 'Reputation',
            cell: (a) =>
              a.reputations?.length
                ? h(
                    'ul',
                    {class: 'scores'},
                    a.reputations.map((r) =>
                      h('li', null, this.link(r, [visible(r.domain), ' ', h('strong', {class: 'num'}, score(r.r))])),
                    ),
                  )
                : h('span', {class: 'muted'}, 'not judged yet'),
          },
          {title: 'Profile', cell: (a) => profile(a, open.has(`${a.tenant}/${a.profile.name}`))},
        ],
      }),
    );
  }

  // link leads to a reputation's course.
  link(r, children) {
    return h(
      'a',
      {
        href: '#/agents?' + new URLSearchParams({kind: r.subject.kind, subject: r.subject.name, domain: r.domain}),
        'data-testid': 'reputation-link',
        'data-key': keyOf(r),
        'aria-current': keyOf(r) === this.chosenKey() ? 'true' : null,
      },
      children,
    );
  }

  chosenKey() {
    const {kind, subject, domain} = this.ctx.query;
    return subject ? JSON.stringify([kind, subject, domain]) : this.reputations[0] ? keyOf(this.reputations[0]) : '';
  }

  showReputations() {
    const rows = this.reputations.filter((r) => !this.kind.value || r.subject.kind === this.kind.value);
    replace(
      this.reputationBox,
      table({
        caption: 'Reputations',
        testid: 'reputations',
        rows,
        key: keyOf,
        empty: 'Nothing was judged yet. A job with the section evaluation is.',
        rowProps: (r) => ({'data-testid': 'reputation-row', class: keyOf(r) === this.chosenKey() ? 'is-chosen' : null}),
        columns: [
          {
            title: 'Who',
            head: true,
            class: 'grow',
            cell: (r) =>
              h(
                'div',
                null,
                this.link(r, h('bdi', {class: 'wrap'}, visible(r.subject.name))),
                h('div', {class: 'muted small'}, r.subject.kind, ' \u00b7 ', visible(r.domain)),
              ),
          },
          {
            title: 'Reputation',
            cell: (r) =>
              h('div', {class: 'score-line'}, bar(r.r, {label: `reputation ${score(r.r)}`}), h('strong', {class: 'num'}, score(r.r))),
          },
          {title: 'Of', class: 'num', cell: (r) => count(r.n)},
          {
            title: 'Latest',
            class: 'num',
            cell: (r) => (zero(r.last_at) ? '\u2013' : h('span', {title: firstLine(r.last_job)}, score(r.last))),
          },
        ],
      }),
    );
  }

  // select shows the course of the reputation that the address names, else the first;
  // again: only if it has changed since.
  async select(again = false) {
    const key = this.chosenKey();
    const r = this.reputations.find((other) => keyOf(other) === key);
    const [kind, subject, domain] = key ? JSON.parse(key) : [];
    if (!subject) {
      replace(this.detail);
      return;
    }
    const state = key + (r ? r.n : '');
    if (again && state === this.shown) return;
    this.shown = state;
    const {points} = await this.ctx.api.get('/v1/reputations/history', {signal: this.ctx.signal, query: {kind, subject, domain}});
    const list = points || [];
    const latest = list.at(-1);
    const answer = latest
      ? await this.ctx.api.get(this.ctx.path`/v1/jobs/${latest.job}/evaluations`, {signal: this.ctx.signal}).catch(() => null)
      : null;
    if (this.shown !== state) return; // another one was chosen meanwhile
    const all = (answer?.evaluations || []).sort((a, b) => Date.parse(a.at) - Date.parse(b.at));
    const evaluation = all.filter((e) => e.domain === domain || kind === 'tenant').at(-1) || all.at(-1);
    const chart = lineChart({
      title: `Reputation of ${kind} ${visible(subject)} in ${visible(domain || 'all domains')}`,
      max: 1,
      format: score,
      testid: 'reputation-chart',
      height: 200,
      series: [
        {name: 'Reputation', points: list.map((p) => ({x: Date.parse(p.at), y: p.score}))},
        {name: 'Each evaluation', points: list.map((p) => ({x: Date.parse(p.at), y: p.composite}))},
      ],
    });
    replace(
      this.detail,
      panel(
        'Over time',
        {note: plural(list.length, 'evaluation')},
        list.length ? chart.element : h('p', {class: 'empty'}, 'No evaluation is in it yet.'),
      ),
      evaluation ? this.newest(evaluation, r) : null,
    );
  }

  // newest shows the six dimensions of an evaluation.
  newest(e, r) {
    return panel(
      'Newest evaluation',
      {note: [timeOf(e.at), /^by /.test(e.source) ? ' ' : ' by ', visible(e.source)]},
      facts([
        ['Job', jobLink(e.job, e.name)],
        ['Attempt', e.attempt],
        ['Composite', h('strong', {class: 'num'}, score(e.composite))],
        ['Weights of', visible(e.weights_of)],
      ]),
      h(
        'ul',
        {class: 'dimensions', 'data-testid': 'dimensions'},
        DIMENSIONS.map(([name, label, what]) => {
          const value = e.vector?.[name];
          const average = r?.average?.[name];
          const known = value !== undefined && value !== null;
          const words = known
            ? `${label}: ${score(value)}` + (average === undefined || average === null ? '' : `, on average ${score(average)}`)
            : `${label}: nobody said anything`;
          return h(
            'li',
            {'data-testid': 'dimension', 'data-dimension': name, title: what},
            h('span', null, label),
            known ? bar(value, {label: words, target: average}) : h('span', {class: 'muted small'}, 'nothing said'),
            h('strong', {class: 'num'}, known ? score(value) : '\u2013'),
            h(
              'span',
              {class: 'muted small wrap'},
              known ? [visible(e.sources?.[name] || ''), e.weights?.[name] ? `, weighs ${percent(e.weights[name])}` : ''] : '',
            ),
          );
        }),
      ),
      h('p', {class: 'small muted'}, '1 is best in each. The mark on a bar is the average so far.'),
      e.comment ? h('p', {class: 'wrap'}, visible(e.comment)) : null,
      e.problems?.length
        ? h(
            'ul',
            {class: 'small'},
            e.problems.map((p) => h('li', {class: 'wrap field-problem'}, visible(p))),
          )
        : null,
    );
  }
}

const keyOf = (r) => JSON.stringify([r.subject.kind, r.subject.name, r.domain]);
const score = (x) => (x ?? 0).toFixed(2);
const tags = (list) =>
  list?.length
    ? h(
        'span',
        {class: 'tags'},
        list.map((t) => h('span', {class: 'tag'}, visible(t))),
      )
    : h('span', {class: 'muted'}, '\u2013');

// profile unfolds the rest of what was declared.
function profile(a, open) {
  const p = a.profile;
  const json = (value) => h('pre', {class: 'prose', tabindex: '0'}, visible(JSON.stringify(value, null, 2)));
  const rest = [
    ['Fallback', p.fallback?.length ? visible(p.fallback.map((c) => [c.worker, c.model].filter(Boolean).join(' ')).join(', ')) : ''],
    ['Oversight', p.oversight ? visible(String(p.oversight.mode).replaceAll('_', ' ')) : ''],
    ['Judged as', visible(p.evaluation_domain || '')],
    ['System prompt', p.system_prompt ? h('pre', {class: 'prose', tabindex: '0'}, visible(p.system_prompt)) : ''],
    ['Input', p.input ? json(p.input) : ''],
    ['Output', p.output ? json(p.output) : ''],
  ].filter(([, value]) => value);
  if (!rest.length) return h('span', {class: 'muted'}, '\u2013');
  return h(
    'details',
    {'data-testid': 'agent-profile', 'data-key': `${a.tenant}/${p.name}`, open, class: 'profile'},
    h('summary', null, 'More'),
    facts(rest),
  );
}
