// What somebody sees at a glance: what needs a person, what runs, what waits and why,
// what it costs, who has what share, and what is not well.

import {
  h,
  s,
  replace,
  refresh,
  panel,
  table,
  badge,
  bar,
  ago,
  timeOf,
  since,
  clockTime,
  money,
  cost,
  tokens,
  tokensOf,
  count,
  percent,
  plural,
  duration,
  millis,
  bytes,
  jobLink,
  link,
  firstLine,
  visible,
  zero,
} from '../dom.js';
import {approve, pause, reject, resume} from '../actions.js';
import {Questions} from '../questions.js';
import {lastLine} from '../lines.js';

export const page = {
  title: 'Overview',
  path: '/',
  nav: 'overview',
  async mount(root, ctx) {
    const body = h('div', {class: 'grid'});
    const notices = h('div', {class: 'grid'});
    const tiles = h('div', {class: 'tiles'});
    const sub = h('span', {class: 'muted'});
    const now = h('div');
    const needs = new Needs(ctx, () => load());
    const lines = new Map(); // job/attempt → what it has said last
    replace(
      root,
      h(
        'div',
        {class: 'page-head'},
        h('h1', {tabindex: '-1'}, 'Overview'),
        sub,
        h(
          'div',
          {class: 'actions'},
          ctx.can('operate')
            ? h(
                'button',
                {
                  type: 'button',
                  class: 'ghost danger',
                  'data-testid': 'pause',
                  onclick: async () => {
                    if (await pause()) load();
                  },
                },
                'Pause everything',
              )
            : null,
        ),
      ),
      notices,
      needs.el,
      now,
      tiles,
      body,
    );

    const panels = {
      waiting: h('div', {class: 'half'}),
      throughput: h('div', {class: 'half'}),
      budgets: h('div', {class: 'half'}),
      circuits: h('div', {class: 'half'}),
      tenants: h('div'),
      cores: h('div'),
      alerts: h('div'),
    };
    replace(body, Object.values(panels));

    let last = null,
      grants = {list: [], at: -Infinity};
    async function load() {
      let o, runs;
      try {
        o = await ctx.api.get('/v1/overview', {signal: ctx.signal});
        runs = await runningAt(ctx, o.at);
        await Promise.all([needs.load(), linesOf(ctx, runs.slice(0, SHOWN), lines)]);
        if (performance.now() - grants.at >= GRANTS_EVERY) grants = {list: await grantsAt(ctx, o.at), at: performance.now()};
      } catch (error) {
        if (!last) throw error;
        return; // what is seen stays; the connection's state tells that it is old
      }
      last = {o, runs};
      draw(o, runs);
    }

    function draw(o, runs) {
      refresh(sub, o.version, ' \u00b7 up ', since(o.started), ' \u00b7 policy ', visible(o.policy));
      refresh(
        notices,
        o.stopping
          ? h(
              'div',
              {class: 'notice tone-ask', role: 'status'},
              h('div', null, h('strong', null, 'Stopping'), ' The scheduler begins no new jobs.'),
            )
          : null,
        (o.isolations || []).map((i) => isolation(i, ctx, load)),
      );
      notices.hidden = !notices.childElementCount;
      refresh(tiles, tilesOf(o));
      refresh(now, running(o, runs, lines));
      refresh(panels.waiting, waiting(o));
      refresh(panels.throughput, throughput(o));
      refresh(panels.tenants, tenants(o));
      refresh(panels.budgets, budgets(o, grants.list));
      refresh(panels.cores, cores(o));
      refresh(panels.circuits, circuits(o));
      refresh(panels.alerts, alerts(o));
    }

    await load();
    let behind;
    const again = ctx.soon(1500, () => {
      load().catch(() => {});
      clearTimeout(behind); // the scheduler's answer may be 2 s old: the last change shows in the one after
      behind = setTimeout(() => load().catch(() => {}), 2500);
    });
    for (const kind of ['job', 'core', 'circuit', 'escalation', 'signal', 'gap']) ctx.stream.on(kind, again);
    ctx.every(15000, again);
    ctx.every(LINES_EVERY, async () => {
      if (!last?.runs.length) return;
      const before = [...lines].join('\n');
      await linesOf(ctx, last.runs.slice(0, SHOWN), lines);
      if ([...lines].join('\n') !== before) refresh(now, running(last.o, last.runs, lines));
    });
    return () => clearTimeout(behind);
  },
};

const SHOWN = 10; // running jobs, budgets, grants, works to approve
const LINES_EVERY = 3000; // ms
const LOOKED = 10; // events of a run that are searched for its last line
const GRANTS_EVERY = 10000; // ms

// runningAt returns the attempts that run, the first to begin first.
async function runningAt(ctx, at) {
  const since = new Date(new Date(at).getTime() - 1000).toISOString(); // what has ended since is left out below
  const {attempts} = await ctx.api.get('/v1/timeline', {query: {since, limit: 10 * SHOWN}, signal: ctx.signal});
  return (attempts || []).filter((a) => !a.ended);
}

// linesOf notes the last line of each of some runs.
async function linesOf(ctx, runs, lines) {
  const keys = new Set(runs.map((r) => r.job + '/' + r.attempt));
  for (const key of lines.keys()) if (!keys.has(key)) lines.delete(key);
  await Promise.all(
    runs.map(async (r) => {
      try {
        const {events} = await ctx.api.get(ctx.path`/v1/jobs/${r.job}/events`, {query: {last: LOOKED}, signal: ctx.signal});
        const line = lastLine((events || []).filter((e) => e.attempt === r.attempt));
        if (line) lines.set(r.job + '/' + r.attempt, line);
      } catch {
        /* what was said before stays */
      }
    }),
  );
}

// Needs is what waits for a person: questions of agents, and works to be approved.
class Needs {
  constructor(ctx, changed) {
    Object.assign(this, {ctx, changed});
    this.questions = new Questions(ctx, {answered: changed});
    this.works = h('div', {class: 'works'});
    this.none = h('p', {class: 'empty', 'data-testid': 'needs-none'}, 'Nothing waits for you.');
    this.el = panel('Needs you', {testid: 'needs'}, this.none, this.questions.el, this.works);
  }

  async load() {
    const get = (route) => this.ctx.api.get(route, {signal: this.ctx.signal});
    const [asked, approvals] = await Promise.all([get('/v1/questions'), get('/v1/approvals')]);
    const questions = asked.questions || [],
      works = (approvals.jobs || []).filter((e) => e.approval);
    this.none.hidden = questions.length + works.length > 0;
    this.el.classList.toggle('is-quiet', !this.none.hidden);
    this.questions.show(questions);
    refresh(
      this.works,
      works.slice(0, SHOWN).map((e) => this.work(e)),
      works.length > SHOWN ? h('p', {class: 'empty'}, h('a', {href: '#/approvals'}, `and ${count(works.length - SHOWN)} more`)) : null,
    );
  }

  work(e) {
    const job = {id: e.id, name: e.spec.name || e.spec.id};
    const act = (what, title, f, cls) =>
      h(
        'button',
        {
          type: 'button',
          class: cls,
          'data-key': what + e.id,
          'data-testid': what,
          'aria-label': title + ' ' + firstLine(visible(job.name), 64),
          onclick: async () => {
            if (await f(job)) this.changed();
          },
        },
        title + '\u2026',
      );
    return h(
      'article',
      {class: 'question', 'data-testid': 'approval-item', 'data-key': e.id},
      h('p', {class: 'question-head'}, jobLink(e.id, job.name, {'data-key': 'work-' + e.id}), ' waits for approval'),
      h('p', {class: 'wrap'}, visible(firstLine(e.approval.why, 300))),
      h(
        'p',
        {class: 'small muted approval-meta'},
        'asked ',
        timeOf(e.approval.asked_at),
        zero(e.approval.until) ? null : [', ', e.approval.default === 'approve' ? 'approved' : 'rejected', ' by itself ', timeOf(e.approval.until)],
        ' \u00b7 ',
        h('bdi', null, visible(e.spec.tenant)),
      ),
      h(
        'div',
        {class: 'question-answers'},
        this.ctx.can('operate') ? [act('approve', 'Approve', approve, 'primary'), act('reject', 'Reject', reject, 'danger')] : null,
        h('a', {class: 'button', href: link`/jobs/${e.id}`, 'data-key': 'look-' + e.id}, 'Look at it'),
      ),
    );
  }
}

// grantsAt returns the grants that bound somebody, each with what its owner has used
// of it: {grant, used: {tokens, usd, wall (ms)}}, and the balances of credits: {balance}.
async function grantsAt(ctx, at) {
  let list;
  let balances;
  try {
    const answer = await ctx.api.get('/v1/grants', {signal: ctx.signal});
    list = answer.grants || [];
    balances = answer.balances || [];
  } catch (error) {
    if (error.status === 501) return []; // the store keeps no accounts
    throw error;
  }
  list = list.filter((g) => g.tokens || g.cost_usd || g.wall || g.dead);
  const accounts = new Map();
  for (const window of new Set(list.map((g) => g.window || ''))) {
    const since = window ? new Date(new Date(at).getTime() - millis(window)).toISOString() : '';
    const answer = await ctx.api.get('/v1/usage', {query: {by: ['tenant', 'agent'], since}, signal: ctx.signal});
    accounts.set(window, answer.accounts || []);
  }
  const bounded = list.map((grant) => {
    const used = {tokens: 0, usd: 0, wall: 0};
    for (const a of accounts.get(grant.window || '')) {
      if (a.tenant !== grant.tenant || (grant.agent && a.agent !== grant.agent)) continue;
      used.tokens += tokensOf(a.usage);
      used.usd += a.usage?.cost_usd || 0;
      used.wall += millis(a.wall);
    }
    return {grant, used};
  });
  return [...bounded, ...balances.map((balance) => ({balance}))];
}

function isolation(i, ctx, load) {
  return h(
    'div',
    {class: 'notice tone-bad', role: 'status', 'data-testid': 'isolations'},
    h(
      'div',
      null,
      h('strong', null, i.scope === 'global' ? 'Everything is paused' : visible(i.scope) + ' is out of use'),
      ' ',
      visible(i.message || i.cause),
      h(
        'span',
        {class: 'muted'},
        ' since ',
        timeOf(i.since),
        zero(i.until) ? ', until somebody resumes it' : [', until ', clockTime(i.until)],
      ),
    ),
    ctx.can('operate')
      ? h(
          'button',
          {
            type: 'button',
            'data-testid': 'resume',
            'data-key': 'resume-' + i.scope,
            onclick: async () => {
              if (await resume(i.scope)) load();
            },
          },
          'Resume',
        )
      : null,
  );
}

function tile(name, value, note, {href, testid, tone} = {}) {
  return h(
    href ? 'a' : 'div',
    {class: ['tile', tone && 'loud', tone && 'tone-' + tone], href, 'data-testid': testid, 'data-key': href},
    h('span', {class: 'tile-name'}, name),
    h('span', {class: 'tile-value'}, value),
    h('span', {class: 'tile-note'}, note),
  );
}

function tilesOf(o) {
  const c = o.census || {};
  const u = o.today?.usage;
  const budget = (o.budgets || [])
    .filter((b) => !b.tenant && b.max_usd > 0)
    .sort((a, b) => b.spent_usd / b.max_usd - a.spent_usd / a.max_usd)[0];
  const last = (o.throughput || []).reduce((n, t) => n + t.succeeded + t.failed + t.cancelled, 0);
  return [
    tile('Running', [count(o.running), h('small', null, ' of ', count(o.max_at_once))], plural(Math.max(0, o.max_at_once - o.running), 'slot') + ' free', {
      href: '#/jobs?status=running',
      testid: 'running',
    }),
    tile('Pending', count(c.queued + c.held), c.held ? plural(c.held, 'waits', 'wait') + ' for other jobs' : 'No job waits for other jobs', {
      href: '#/jobs?status=pending',
      testid: 'queued',
    }),
    tile('Approvals', count(c.approval), c.approval ? 'Waiting for approval' : 'No job waits for approval', {
      href: '#/approvals',
      testid: 'approval',
      tone: c.approval ? 'ask' : null,
    }),
    tile('Dead letters', count(c.dead_letters), c.dead_letters ? 'Failed, not yet handled' : 'None', {
      href: '#/dead-letters',
      testid: 'dead-letters',
      tone: c.dead_letters ? 'bad' : null,
    }),
    tile('Ended, last hour', count(last), failedPart(o, last), {href: '#/timeline?span=1h', testid: 'ended'}),
    tile(
      'Cost today',
      cost(u),
      [
        tokens(tokensOf(u)),
        ' tokens',
        budget ? [' \u00b7 ', percent(budget.spent_usd / budget.max_usd), ' of ', money(budget.max_usd)] : null,
      ],
      {testid: 'cost'},
    ),
  ];
}

function failedPart(o, all) {
  const bad = (o.throughput || []).reduce((n, t) => n + t.failed, 0);
  return all ? (bad ? percent(bad / all) + ' failed' : 'None failed') : 'Nothing ended';
}

// running lists what runs at this moment, the longest first, each with its last line.
function running(o, runs, lines) {
  const more = Math.max(runs.length, o.census?.dispatched || 0) - Math.min(runs.length, SHOWN);
  return panel(
    'Running now',
    {testid: 'running-now'},
    table({
      caption: 'Attempts that run now, the longest first',
      rows: runs.slice(0, SHOWN),
      key: (r) => r.job,
      empty: 'Nothing runs.',
      columns: [
        {title: 'Job', head: true, cell: (r) => jobLink(r.job, r.name, {'data-key': r.job})},
        {title: 'Tenant', cell: (r) => h('bdi', null, visible(r.tenant))},
        {title: 'Worker', cell: (r) => h('bdi', null, visible(r.worker))},
        {title: 'Attempt', class: 'num right', cell: (r) => String(r.attempt)},
        {title: 'For', class: 'num right', cell: (r) => since(r.began)},
      ],
      detail: (r) => {
        const line = lines.get(r.job + '/' + r.attempt);
        return line ? h('span', {class: 'last-line', 'data-testid': 'last-line'}, line) : null;
      },
    }),
    more > 0 && runs.length ? h('p', {class: 'empty'}, h('a', {href: '#/jobs?status=running'}, `and ${count(more)} more`)) : null,
  );
}

function waiting(o) {
  const list = o.waiting || [];
  const most = Math.max(1, ...list.map((w) => w.jobs));
  return panel(
    'What jobs wait for',
    {testid: 'waiting'},
    list.length
      ? h(
          'ul',
          {class: 'ranks'},
          list
            .slice(0, 12)
            .map((w) =>
              h(
                'li',
                {class: 'rank tone-idle'},
                h('span', {class: 'rank-name'}, visible(w.why.replace(/^waiting for /, ''))),
                h('span', {class: 'num'}, count(w.jobs)),
                bar(w.jobs / most, {label: plural(w.jobs, 'job')}),
              ),
            ),
        )
      : h('p', {class: 'empty'}, 'Nothing waits.'),
  );
}

// throughput draws bars of what ended, and says the same in words for those who do
// not see it.
function throughput(o) {
  const list = o.throughput || [];
  const W = 560,
    H = 150,
    left = 34,
    bottom = 20,
    top = 14;
  const sum = (t) => t.succeeded + t.failed + t.cancelled;
  const most = Math.max(4, ...list.map(sum));
  const step = (W - left) / Math.max(1, list.length),
    y = (n) => ((H - bottom - top) * n) / most;
  const total = {good: 0, bad: 0, off: 0};
  for (const t of list) {
    total.good += t.succeeded;
    total.bad += t.failed;
    total.off += t.cancelled;
  }
  const time = (at) => clockTime(at).slice(-8, -3);
  const bars = list.map((t, i) => {
    let base = H - bottom;
    return s(
      'g',
      null,
      s('title', null, `${time(t.at)}: ${t.succeeded} succeeded, ${t.failed} failed, ${t.cancelled} cancelled`),
      s('rect', {x: left + i * step, y: top, width: step, height: H - bottom - top, fill: 'transparent'}),
      [
        ['good', t.succeeded],
        ['bad', t.failed],
        ['off', t.cancelled],
      ].map(([tone, n]) => {
        if (!n) return null;
        base -= y(n);
        return s('rect', {class: 'v-' + tone, x: left + i * step + step * 0.14, y: base, width: step * 0.72, height: y(n), rx: 1.5});
      }),
    );
  });
  const label = `In the last hour ${total.good} succeeded, ${total.bad} failed and ${total.off} were cancelled.`;
  return panel(
    'Throughput',
    {testid: 'throughput', note: 'ended in each 5 minutes of the last hour'},
    s(
      'svg',
      {class: 'chart', viewBox: `0 0 ${W} ${H}`, role: 'img', 'aria-label': label},
      [0, 0.5, 1].map((p) => [
        s('line', {class: 'axis', x1: left, x2: W, y1: H - bottom - y(most * p), y2: H - bottom - y(most * p)}),
        s('text', {x: left - 8, y: H - bottom - y(most * p) + 4, 'text-anchor': 'end'}, tokens(Math.round(most * p))),
      ]),
      bars,
      list.map((t, i) => {
        const last = i === list.length - 1;
        return i % 3 === 0
          ? s('text', {x: last ? W : left + i * step + step / 2, y: H - 4, 'text-anchor': last ? 'end' : 'middle'}, time(t.at))
          : null;
      }),
    ),
    h(
      'p',
      {class: 'legend'},
      h('span', {class: 'tone-good'}, h('i'), count(total.good), ' succeeded'),
      h('span', {class: 'tone-bad'}, h('i'), count(total.bad), ' failed'),
      h('span', {class: 'tone-off'}, h('i'), count(total.off), ' cancelled'),
    ),
  );
}

function tenants(o) {
  return panel(
    'Share per tenant',
    {testid: 'tenants', note: 'the mark is its target'},
    table({
      caption: 'Tenants with their share and its target',
      rows: o.tenants || [],
      key: (t) => t.tenant,
      empty: 'No tenant has used anything yet.',
      columns: [
        {
          title: 'Tenant',
          head: true,
          cell: (t) =>
            h('a', {class: 'job-link', href: '#/jobs?tenant=' + encodeURIComponent(t.tenant)}, h('bdi', null, visible(t.tenant))),
        },
        {
          title: 'Share',
          class: 'wide',
          cell: (t) =>
            t.share
              ? bar(t.share.actual, {
                  target: t.share.target || null,
                  label: `${percent(t.share.actual)}, target ${percent(t.share.target)}`,
                })
              : '',
        },
        {
          title: 'Has / target',
          class: 'num right',
          cell: (t) => (t.share ? percent(t.share.actual) + (t.share.target ? ' / ' + percent(t.share.target) : '') : ''),
        },
        {title: 'Running', class: 'num right', cell: (t) => count(t.running)},
        {
          title: 'Pending',
          class: 'num right',
          cell: (t) => [
            count(t.queued),
            zero(t.oldest) || !t.queued
              ? null
              : h('span', {class: 'muted', title: 'since when its oldest could run'}, ' \u00b7 ', ago(t.oldest)),
          ],
        },
        {title: 'Today', class: 'num right', cell: (t) => cost(t.today?.usage)},
      ],
      detail: (t) => (t.share?.held ? 'Held back: ' + visible(t.share.held) : null),
    }),
  );
}

// budgets lists the windows of money of the configuration, and what tenants and agents
// were granted, what is nearest to its end first.
function budgets(o, grants) {
  const list = [
    ...(o.budgets || []).map((b) => ({
      name: b.tenant ? h('bdi', null, visible(b.tenant)) : 'All tenants',
      note: (b.policy ? ' budget of the policy per ' : ' budget per ') + span(b.window),
      parts: [
        b.max_usd > 0 && {part: b.spent_usd / b.max_usd, has: money(b.spent_usd), of: money(b.max_usd)},
        b.max_tokens > 0 && {part: b.tokens / b.max_tokens, has: tokens(b.tokens), of: tokens(b.max_tokens) + ' tokens'},
      ].filter(Boolean),
    })),
    ...grants
      .filter(({balance: b}) => b)
      .map(({balance: b}) => ({
        name: h('bdi', null, visible(b.tenant)),
        note: ` credits, ${count(b.left)} left`,
        parts: [{part: b.added > 0 ? b.taken / b.added : 1, has: count(b.taken), of: count(b.added)}],
      })),
    ...grants.filter(({grant: g}) => g).map(({grant: g, used}) => ({
      name: h('bdi', null, visible(g.tenant + (g.agent ? '/' + g.agent : ''))),
      note: ' grant ' + (g.window ? 'per ' + span(g.window) : 'in all'),
      dead: g.dead,
      parts: [
        g.cost_usd && {part: used.usd / g.cost_usd, has: money(used.usd), of: money(g.cost_usd)},
        g.tokens && {part: used.tokens / g.tokens, has: tokens(used.tokens), of: tokens(g.tokens) + ' tokens'},
        g.wall && {part: used.wall / millis(g.wall), has: duration(used.wall), of: duration(millis(g.wall))},
      ].filter(Boolean),
    })),
  ];
  const most = (b) => Math.max(0, ...b.parts.map((p) => p.part || 0));
  list.sort((a, b) => most(b) - most(a));
  return panel(
    'Budgets and grants',
    {testid: 'budgets'},
    list.length
      ? h(
          'ul',
          {class: 'ranks'},
          list
            .slice(0, SHOWN)
            .map((b) =>
              h(
                'li',
                {class: 'rank'},
                h('span', {class: 'rank-name'}, b.name, h('span', {class: 'muted'}, b.note)),
                b.dead ? badge('dead', {label: 'may not submit'}) : null,
                b.parts.map((p) => [
                  h('span', {class: 'num rank-of'}, p.has, h('span', {class: 'muted'}, ' of ', p.of)),
                  bar(p.part, {tone: p.part >= 1 ? 'bad' : p.part >= 0.8 ? 'ask' : 'good', label: `${percent(p.part)} is used`}),
                ]),
              ),
            ),
        )
      : h('p', {class: 'empty'}, 'No budgets and no grants.'),
    list.length > SHOWN ? h('p', {class: 'empty'}, `and ${count(list.length - SHOWN)} more, which are less used`) : null,
  );
}

// span returns a window of time in words: "day", "6 h 00 m".
function span(window) {
  const ms = millis(window);
  const names = new Map([
    [3600000, 'hour'],
    [86400000, 'day'],
    [604800000, 'week'],
    [2592000000, '30 days'],
  ]);
  return names.get(ms) || duration(ms);
}

function coreName(c) {
  return c.node ? c.node + '/' + c.place : String(c.index);
}

function cores(o) {
  return panel(
    'Cores and their watchdog',
    {testid: 'cores'},
    table({
      caption: 'Cores',
      rows: o.cores || [],
      key: (c) => 'core-' + c.index,
      empty: 'No core is up.',
      columns: [
        {
          title: 'Core',
          head: true,
          class: 'num',
          cell: (c) => [coreName(c), c.pid ? h('span', {class: 'muted'}, ' pid ', c.pid) : null],
        },
        {title: 'State', cell: (c) => badge(c.state)},
        {
          title: 'Watchdog',
          cell: (c) =>
            c.stage
              ? badge(c.stage, {tone: c.stage === 'normal' ? 'good' : /throttl|observ|watch/.test(c.stage) ? 'ask' : 'bad'})
              : h('span', {class: 'muted'}, '\u2013'),
        },
        {title: 'Jobs', class: 'num right', cell: (c) => count(c.inflight) + (c.concurrency ? ' of ' + c.concurrency : '')},
        {title: 'Memory', class: 'num right', cell: (c) => (c.core_rss_bytes > 0 ? bytes(c.core_rss_bytes) : '')},
        {title: 'Restarts', class: 'num right', cell: (c) => count(c.restarts)},
      ],
      detail: (c) => visible(c.evidence || c.cause || ''),
    }),
  );
}

function circuits(o) {
  return panel(
    'Breakers',
    {testid: 'circuits'},
    table({
      caption: 'Circuit breakers of the workers',
      rows: o.circuits || [],
      key: (c) => c.worker + ':' + (c.model || ''),
      empty: 'No circuit breaker is open.',
      columns: [
        {title: 'Worker', head: true, cell: (c) => h('bdi', null, visible(c.worker + (c.model ? ':' + c.model : '')))},
        {title: 'State', cell: (c) => badge(c.state)},
        {title: 'Failed', class: 'num right', cell: (c) => count(c.failures) + ' of ' + count(c.requests)},
        {title: 'Slow', class: 'num right', cell: (c) => count(c.slow)},
      ],
      detail: (c) =>
        c.state === 'closed' || (!c.cause && zero(c.open_until))
          ? null
          : [visible(c.cause || ''), zero(c.open_until) ? null : [c.cause ? '; ' : '', 'lets a probe through ', timeOf(c.open_until)]],
    }),
  );
}

function alerts(o) {
  const list = o.alerts || [];
  return panel(
    'Alerts',
    {testid: 'alerts'},
    list.length
      ? h(
          'ul',
          {class: 'lines tall', tabindex: '0', 'aria-label': 'Alerts, the newest first'},
          list.map((a) =>
            h(
              'li',
              null,
              timeOf(a.at),
              badge(a.kind, {tone: a.kind === 'escalation' || a.kind === 'isolation' ? 'bad' : 'ask'}),
              h('span', {class: 'wrap'}, a.scope ? [h('strong', null, visible(a.scope)), ' '] : null, visible(a.message)),
            ),
          ),
        )
      : h('p', {class: 'empty'}, 'All is well.'),
  );
}
