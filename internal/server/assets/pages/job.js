// One job, as a conversation: what it was asked, what the agent says and does, what it asks and is told, what it changed and
// answers, and a box to write in; facts and ids at the side, attempts and what is left of them below.

import {
  h,
  replace,
  refresh,
  panel,
  facts,
  badge,
  stateOf,
  noteOf,
  visible,
  link,
  jobLink,
  timeOf,
  since,
  ago,
  setText,
  clockTime,
  zero,
  money,
  cost,
  tokens,
  tokensOf,
  count,
  shortId,
  failed,
} from '../dom.js';
import {Stream, path} from '../api.js';
import {cancel, retry, approve, reject, checkpoint} from '../actions.js';
import {attemptsPanel, choice, stretch} from '../attempts.js';
import {Comments} from '../comments.js';
import {Log} from '../log.js';
import {Questions} from '../questions.js';
import {artifactsPanel, changesOf, drawResults} from '../results.js';
import {Talk} from '../talk.js';

export const page = {
  title: 'Job',
  path: '/jobs/:job',
  nav: 'jobs',
  async mount(root, ctx) {
    const id = ctx.params.job;
    const state = {job: null, attempts: [], messages: [], used: new Map(), drawn: {}, comments: new Comments()};
    const parts = Object.fromEntries(
      ['head', 'why', 'facts', 'log', 'answer', 'patch', 'attempts', 'steps', 'evaluations', 'artifacts', 'ids'].map((name) => [name, h('div')]),
    );

    async function load() {
      const get = (more) => ctx.api.get(path`/v1/jobs/${id}` + more, {signal: ctx.signal});
      const [answer, messages, questions] = await Promise.all([get(''), get('/messages'), get('/questions')]);
      state.job = answer.job;
      state.attempts = answer.attempts || [];
      state.messages = messages.messages || [];
      draw(ctx, state, parts, again);
      log.setMessages(state.messages);
      drawEnds(state, log.head, parts.answer);
      talk.show(state.job, state.messages);
      asked.show((questions.questions || []).filter((q) => q.state === 'open'));
      drawResults(ctx, state, parts);
    }
    const again = ctx.soon(700, () =>
      load().catch((error) => {
        if (error.status) failed(error);
      }),
    );
    const log = new Log({
      older: async (after, limit) =>
        (await ctx.api.get(path`/v1/jobs/${id}/events`, {query: {after, limit}, signal: ctx.signal})).events || [],
      between: (attempt) => changesOf(ctx, state, attempt),
    });
    const talk = new Talk(ctx, id, state.comments, again);
    const asked = new Questions(ctx, {alone: true, answered: again, note: (text) => setText(talk.note, text)});
    log.tail.append(parts.answer, asked.el);
    state.toEnd = () => log.follow();
    await load();
    ctx.setTitle(state.job.spec?.id || shortId(id));
    const heard = h('span', {class: 'muted num', 'data-testid': 'log-heard'});
    replace(parts.log, panel('Conversation', {actions: [heard, ...log.controls]}, log.el));
    replace(
      root,
      h(
        'div',
        {class: 'job-head'},
        h(
          'nav',
          {class: 'crumb', 'aria-label': 'Path'},
          h('a', {href: '#/jobs'}, 'Jobs'),
          h('span', {class: 'muted'}, ' / ' + shortId(id)),
        ),
        parts.head,
        parts.why,
      ),
      h(
        'div',
        {class: 'job-body'},
        h('div', {class: 'job-talk'}, parts.log, parts.patch, talk.el),
        h('div', {class: 'job-side'}, parts.facts, parts.ids),
      ),
      parts.attempts,
      h('div', {class: 'grid job-more'}, h('div', {class: 'half'}, parts.steps), h('div', {class: 'half'}, parts.evaluations)),
      parts.artifacts,
    );

    ctx.every(1000, () => {
      const runs = state.job.state === 'dispatched';
      setText(heard, runs && state.heard ? 'last event ' + ago(state.heard) : '');
      if (runs) stretch(state, parts.attempts);
    });
    const stream = new Stream(path`/v1/jobs/${id}/stream`);
    stream.on('event', (e) => {
      if (!e) return;
      log.add(e);
      state.heard = e.time;
      if (e.kind === 'usage' && e.usage) {
        add(state.used, e);
        retold();
      }
      if (e.kind === 'text' && e.text) state.said = e.text;
      if (e.kind === 'message') talk.heard(e);
      if (['state', 'question', 'answer', 'message'].includes(e.kind)) again();
    });
    const caughtUp = () => {
      state.caught = true; // all that was said so far is here: it comes before the job
      again();
    };
    stream.on('job', caughtUp);
    stream.on('end', () => {
      stream.close();
      caughtUp();
    });
    stream.on('problem', (error) => {
      failed(error);
      caughtUp();
    });
    const retold = ctx.soon(1000, () => drawFacts(state, parts));
    for (const kind of ['job', 'signal'])
      ctx.stream.on(kind, (u) => {
        if (u?.job === id) again();
      });
    ctx.stream.on('gap', again);
    return () => {
      stream.close();
      log.stop();
    };
  },
};

// add sums what an attempt's usage events tell, for while it runs.
function add(used, e) {
  const u = used.get(e.attempt) || {};
  for (const [k, v] of Object.entries(e.usage)) if (typeof v === 'number') u[k] = (u[k] || 0) + v;
  u.cost_known = e.usage.cost_known && u.cost_known !== false;
  used.set(e.attempt, u);
}

function draw(ctx, state, parts, again) {
  const job = state.job,
    spec = job.spec || {};
  const name = {id: job.id, name: spec.id};
  const ended = ['completed', 'expired', 'cancelled'].includes(job.state);
  const asks = job.held === 'approval';
  const act = (what, title, f, cls) =>
    h(
      'button',
      {
        type: 'button',
        class: cls,
        'data-key': what,
        'data-testid': 'action-' + what,
        onclick: async () => {
          const done = await f(name);
          if (!done) return;
          if (what === 'retry' && done.job?.id && done.job.id !== job.id) ctx.navigate(link`/jobs/${done.job.id}`);
          else again();
        },
      },
      title,
    );
  refresh(
    parts.head,
    h(
      'div',
      {class: 'page-head'},
      h('h1', {tabindex: '-1'}, h('bdi', null, visible(spec.id || shortId(job.id)))),
      h(
        'span',
        {'data-testid': 'job-state', role: 'status'},
        badge(stateOf(job)),
        job.cancel_requested && !ended ? [' ', badge('cancelling', {tone: 'ask'})] : null,
      ),
      h('span', {class: 'muted', 'data-testid': 'job-clock'}, clockOf(job, state.attempts, ended)),
      job.dead_letter && !job.requeued_as && !job.dropped_at ? badge('dead letter', {tone: 'bad'}) : null,
      ctx.can('operate')
        ? h(
            'div',
            {class: 'actions'},
            asks ? [act('approve', 'Approve', approve, 'primary'), act('reject', 'Reject', reject)] : null,
            job.state === 'dispatched' ? act('checkpoint', 'Checkpoint', checkpoint) : null,
            ended ? act('retry', 'Retry', retry) : null,
            ended || job.cancel_requested ? null : act('cancel', 'Cancel', cancel, 'danger'),
          )
        : null,
    ),
  );
  refresh(parts.why, whyOf(ctx, state, ended, asks));
  drawFacts(state, parts);
  refresh(parts.attempts, attemptsPanel(state));
  refresh(parts.artifacts, artifactsPanel(job, state.attempts));
  const sessions = state.attempts.map((a) => a.session).join();
  if (state.drawn.ids !== sessions) {
    const open = parts.ids.querySelector('details')?.open;
    state.drawn.ids = sessions;
    replace(parts.ids, idsPanel(job, state.attempts, open));
  }
}

// drawEnds draws what a conversation begins and ends with: the prompt, and the answer where that is not what the agent said last.
function drawEnds(state, head, tail) {
  const {job} = state,
    spec = job.spec || {};
  const prose = (title, text) => h('pre', {class: 'bubble-text', tabindex: '0', 'aria-label': title}, visible(text));
  const answer = state.attempts.at(-1)?.outcome?.answer || (job.result ? JSON.stringify(job.result, null, 2) : '');
  const drawn = [spec.instructions, job.feedback, answer, state.caught && state.said].join('\0'); // they may be long
  if (state.drawn.ends === drawn) return;
  state.drawn.ends = drawn;
  replace(
    head,
    job.continues ? h('p', {class: 'log-end', 'data-testid': 'continues'}, 'Goes on from ', jobLink(job.continues), '.') : null,
    h(
      'section',
      {class: 'bubble', 'data-testid': 'instructions', 'aria-label': 'Instructions'},
      h('p', {class: 'bubble-head'}, h('bdi', {class: 'bubble-from'}, visible(spec.agent || spec.tenant)), h('span', {class: 'num muted', title: job.created_at}, clockTime(job.created_at))),
      prose('Instructions', spec.instructions),
      spec.verify ? h('p', {class: 'muted small'}, 'Verified by ', h('code', null, visible(spec.verify))) : null,
      job.feedback ? [h('h3', null, 'Feedback for the next attempt'), prose('Feedback', job.feedback)] : null,
    ),
  );
  refresh(
    tail,
    state.caught && answer && answer.trim() !== String(state.said ?? '').trim()
      ? h('section', {class: 'log-answer', 'data-testid': 'answer', 'aria-label': 'Answer'}, h('h3', null, 'Answer'), prose('Answer', answer))
      : null,
  );
}

// clockOf says how long the job has run or waited, or when it ended; what goes on goes on
// being counted.
function clockOf(job, attempts, ended) {
  const last = attempts.at(-1);
  if (ended) return zero(job.completed_at) ? null : ['ended ', timeOf(job.completed_at)];
  if (job.state === 'dispatched') return last ? ['for ', since(last.started_at)] : null;
  return ['submitted ', timeOf(job.created_at)];
}

// idsPanel holds what only another program wants to know.
function idsPanel(job, attempts, open) {
  const mono = (text) => (text ? h('span', {class: 'mono wrap'}, visible(text)) : null);
  return h(
    'details',
    {class: 'panel', 'data-testid': 'ids', open: Boolean(open)},
    h('summary', null, 'Ids and trace'),
    facts([
      ['Job', mono(job.id)],
      ['Batch', mono(job.batch)],
      ['Trace', mono(job.spec?.trace)],
      ['Key', mono(job.key)],
      ['Turn', mono(job.spec?.turn)],
      ...attempts.map((a) => [`Session of attempt ${a.attempt}`, mono(a.session)]),
    ]),
  );
}

// whyOf says why a job is where it is, and what the person can do about it.
function whyOf(ctx, state, ended, asks) {
  const {job} = state;
  const outcome = state.attempts.at(-1)?.outcome;
  const lines = [];
  let tone = 'idle';
  if (asks) {
    tone = 'ask';
    const a = job.approval || {};
    lines.push(
      h('strong', null, 'Waiting for approval. '),
      visible(a.why || ''),
      zero(a.until) ? null : h('span', {class: 'muted'}, ` Without an answer by ${clockTime(a.until)}: ${a.default || 'reject'}.`),
    );
  } else if (job.dead_letter) {
    tone = 'bad';
    lines.push(h('strong', null, 'Given up. '), visible(job.dead_letter));
  } else if (job.skipped) {
    lines.push(h('strong', null, 'Skipped. '), visible(job.skipped));
  } else if (job.status?.waiting) {
    lines.push(capital(visible(noteOf(job))), '.');
  } else if (ended && outcome?.message && job.exit_kind !== 'succeeded') {
    tone = 'bad';
    lines.push(visible(outcome.message));
  } else if (job.state === 'dispatched' && job.status?.state === 'waiting_approval') {
    tone = 'ask';
    lines.push(h('strong', null, 'The agent asks. '), visible(String(job.status.note || '').replace(/^asks: /, '')));
  } else if (job.status?.note) {
    tone = ended ? 'bad' : 'idle';
    lines.push(capital(visible(job.status.note)), '.');
  }
  if (lines.length && outcome?.hint && job.exit_kind === 'failed') lines.push(h('span', null, '\n' + visible(outcome.hint)));
  const also = [
    ['Waits for', job.waits_for],
    ['Shares the result of', job.coalesced_with],
    ['Superseded by', job.superseded_by],
    ['Requeued as', job.requeued_as],
    ['Does again', job.requeued_from],
    ['Goes on from', job.continues],
  ].filter(([, other]) => other);
  if (also.length) lines.push(also.map(([what, other]) => h('span', null, ' ' + what + ' ', jobLink(other), '.')));
  if (!lines.length) return null;
  const answer = tone === 'ask' && !asks && ctx.can('operate') ? h('button', {type: 'button', 'data-key': 'to-question', onclick: state.toEnd}, 'Answer') : null;
  return h('div', {class: ['notice', 'tone-' + tone], 'data-testid': 'why'}, h('div', {class: 'job-why'}, lines), answer);
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

// usageOf returns what the job has used: of ended attempts, and of the one that runs as
// far as its log tells.
function usageOf(state) {
  const sum = {...(state.job.spent || {})};
  const running = state.attempts.find((a) => !a.outcome);
  const u = running && state.used.get(running.attempt);
  if (u) {
    for (const [k, v] of Object.entries(u)) if (typeof v === 'number') sum[k] = (sum[k] || 0) + v;
    sum.cost_known = Boolean(u.cost_known) && (Boolean(sum.cost_known) || !tokensOf(state.job.spent));
  }
  return sum;
}

function drawFacts(state, parts) {
  const job = state.job,
    spec = job.spec || {},
    u = usageOf(state);
  const w = spec.workspace || {},
    last = state.attempts.at(-1);
  const joined = spec.flow && (spec.flow.joined || spec.flow.needs || spec.flow.node);
  refresh(
    parts.facts,
    panel(
      'Facts',
      {testid: 'usage'},
      facts([
        [
          'Tenant',
          h(
            'a',
            {href: '#/jobs?tenant=' + encodeURIComponent(spec.tenant || ''), 'data-key': 'tenant'},
            h('bdi', null, visible(spec.tenant)),
          ),
        ],
        [
          'Worker',
          visible(choice(last?.choice || spec)) +
            ((spec.fallback || []).length ? ', else ' + visible(spec.fallback.map(choice).join(', ')) : ''),
        ],
        [
          'Tokens',
          tokensOf(u)
            ? [
                tokens(u.input_tokens),
                ' in',
                u.cached_tokens ? h('span', {class: 'muted'}, ' (' + tokens(u.cached_tokens) + ' cached)') : null,
                ', ',
                tokens(u.output_tokens),
                ' out',
              ]
            : null,
        ],
        [
          'Cost',
          state.attempts.length
            ? [cost(u), spec.limits?.max_cost_usd ? h('span', {class: 'muted'}, ' of ' + money(spec.limits.max_cost_usd)) : null]
            : null,
        ],
        [
          'Workspace',
          w.path
            ? [h('span', {class: 'mono wrap'}, visible(w.path)), h('span', {class: 'muted'}, ' ' + (w.isolation || ''))]
            : w.isolation === 'none'
              ? 'none'
              : null,
        ],
        ['Submitted', timeOf(job.created_at)],
        ['May begin', job.state === 'queued' && new Date(job.runnable_at) > new Date() ? timeOf(job.runnable_at) : null],
        ['Began', state.attempts[0] ? timeOf(state.attempts[0].started_at) : null],
        ['Ended', zero(job.completed_at) ? null : timeOf(job.completed_at)],
        [
          'Took',
          state.attempts[0]
            ? since(state.attempts[0].started_at, job.completed_at || (job.state === 'dispatched' ? null : last?.ended_at))
            : null,
        ],
        ['Deadline', zero(job.deadline) ? null : timeOf(job.deadline)],
        ['Attempts', state.attempts.length ? count(job.counted || 0) + ' counted of ' + (spec.limits?.max_attempts || 3) : null],
        ['Turns, commands', u.steps || u.commands ? count(u.steps || 0) + ', ' + count(u.commands || 0) : null],
        ['Priority', spec.priority ? String(spec.priority) : null],
        ['Class', spec.class && spec.class !== 'standard' ? spec.class : null],
        ['Agent', spec.agent ? visible(spec.agent) : null],
        [
          'Workflow',
          joined && job.batch ? h('a', {href: link`/workflows/${job.batch}`, 'data-key': 'workflow'}, shortId(job.batch)) : null,
        ],
        [
          'Decided',
          job.approval?.decided_at
            ? [
                job.approval.approved ? 'approved' : 'rejected',
                job.approval.by ? ' by ' + visible(job.approval.by) : '',
                job.approval.comment ? ': ' + visible(job.approval.comment) : '',
              ]
            : null,
        ],
      ]),
    ),
  );
}

