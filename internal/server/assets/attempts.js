// The attempts of a job: a table with a line of time.

import {h, panel, table, badge, visible, timeOf, since, duration, zero, cost, tokens, tokensOf} from './dom.js';

// choice returns a worker, and its model if it has one.
export const choice = (c) => (c?.worker || '') + (c?.model ? ':' + c.model : '');

// spanOf returns the time from when a job was submitted until now or the end of its last
// attempt, in milliseconds since the epoch.
function spanOf({job, attempts}) {
  const begin = new Date(job.created_at).getTime();
  return {begin, end: Math.max(...attempts.map((a) => (zero(a.ended_at) ? Date.now() : new Date(a.ended_at).getTime())), begin + 1)};
}

const percentOf = (ms, {begin, end}) => ((100 * Math.max(0, ms)) / (end - begin)).toFixed(2) + '%';

// stretch moves the bars of the attempts along with the time.
export function stretch(state, box) {
  const span = spanOf(state);
  for (const line of box.querySelectorAll('.track > i')) {
    const a = state.attempts[Number(line.dataset.attempt)];
    if (!a) continue;
    const from = new Date(a.started_at).getTime(),
      to = zero(a.ended_at) ? span.end : new Date(a.ended_at).getTime();
    line.style.setProperty('--from', percentOf(from - span.begin, span));
    line.style.setProperty('--part', percentOf(to - from, span));
  }
}

// attemptsPanel is a table with a line of time: each attempt's bar from when the job
// was submitted until now or its end.
export function attemptsPanel(state) {
  const job = state.job,
    list = state.attempts;
  const span = spanOf(state),
    {begin, end} = span;
  const pct = (ms) => percentOf(ms, span);
  const tone = (a) =>
    a.state === 'completed' ? 'good' : a.state === 'failed' ? 'bad' : a.state === 'running' || !a.outcome ? 'run' : 'off';
  return panel(
    'Attempts',
    {
      note: list.length
        ? ['from submission to ', zero(job.completed_at) ? 'now, ' : 'its end, ', since(job.created_at, job.completed_at)]
        : '',
    },
    table({
      caption: 'Attempts of the job',
      rows: list,
      key: (a) => 'attempt-' + a.attempt,
      testid: 'attempts',
      empty: 'No attempt has begun yet.',
      columns: [
        {title: '#', head: true, class: 'num', cell: (a) => String(a.attempt)},
        {
          title: 'State',
          cell: (a) => [
            badge(a.outcome?.checkpointed ? 'checkpointed' : a.state),
            a.lost ? h('span', {class: 'muted'}, ' lost') : null,
            a.outcome?.preempted_by ? h('span', {class: 'muted'}, ' preempted by ', h('bdi', null, visible(a.outcome.preempted_by))) : null,
          ],
        },
        {title: 'Worker', cell: (a) => visible(choice(a.choice))},
        {
          title: 'When',
          class: 'wide',
          cell: (a, i) => {
            const from = new Date(a.started_at).getTime() - begin,
              to = (zero(a.ended_at) ? end : new Date(a.ended_at).getTime()) - begin;
            return h(
              'div',
              {
                class: ['track', 'tone-' + tone(a)],
                role: 'img',
                'aria-label': `Began ${duration(from)} after submission and ran ${duration(to - from)}`,
              },
              h('i', {'data-attempt': String(i), style: {'--from': pct(from), '--part': pct(to - from)}}),
            );
          },
        },
        {title: 'Began', class: 'num', cell: (a) => timeOf(a.started_at, {relative: false})},
        {title: 'Took', class: 'num right', cell: (a) => since(a.started_at, a.ended_at)},
        {title: 'Tokens', class: 'num right', cell: (a) => tokens(tokensOf(a.outcome?.usage || state.used.get(a.attempt)))},
        {title: 'Cost', class: 'num right', cell: (a) => cost(a.outcome?.usage || state.used.get(a.attempt))},
        {
          title: 'How it ended',
          class: 'wrap',
          cell: (a) =>
            a.outcome
              ? [
                  a.outcome.class ? h('span', {class: 'mono'}, visible(a.outcome.class) + ' ') : null,
                  visible(a.outcome.message || a.outcome.diff_stat || ''),
                  (a.outcome.denied || []).length ? h('span', {class: 'muted'}, ' Refused: ' + visible(a.outcome.denied.join(', '))) : null,
                  (a.outcome.left_behind || []).length
                    ? h('span', {class: 'muted'}, ' Left behind: ' + visible(a.outcome.left_behind.join(', ')))
                    : null,
                ]
              : '',
        },
      ],
    }),
  );
}
