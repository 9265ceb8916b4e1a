// What a job's attempts left: the patch, steps, evaluations, artifacts.

import {h, replace, refresh, panel, table, badge, bar, visible, timeOf, zero, bytes, plural, failed} from './dom.js';
import {path} from './api.js';
import {diffView} from './diff.js';
import {hears} from './talk.js';

const PATCH = 4 << 20; // bytes of a patch that are shown

const artifactAddress = (job, attempt, name) => path`/v1/jobs/${job.id}/attempts/${attempt}/artifacts/${name}`;

// artifactsPanel lists the files that the attempts left; null if there are none.
export function artifactsPanel(job, attempts) {
  const list = attempts.flatMap((a) => (a.outcome?.artifacts || []).map((f) => ({...f, attempt: a.attempt})));
  return list.length
    ? panel(
        'Artifacts',
        null,
        table({
          caption: 'Artifacts',
          rows: list,
          key: (f) => f.attempt + '-' + f.name,
          testid: 'artifacts',
          columns: [
            {
              title: 'Name',
              head: true,
              cell: (f) =>
                h(
                  'a',
                  {
                    href: artifactAddress(job, f.attempt, f.name),
                    target: '_blank',
                    rel: 'noopener',
                    'data-key': 'artifact-' + f.attempt + f.name,
                  },
                  visible(f.name),
                ),
            },
            {title: 'Attempt', class: 'num', cell: (f) => String(f.attempt)},
            {title: 'Size', class: 'num right', cell: (f) => bytes(f.bytes)},
            {title: 'Path on the host', class: 'mono wrap', cell: (f) => visible(f.path)},
          ],
        }),
      )
    : null;
}

// drawResults draws what is fetched by itself, each part when what it shows may have changed.
export function drawResults(ctx, state, parts) {
  const job = state.job;
  const ended = state.attempts.filter((a) => a.outcome).length;
  const stamp = job.state + ' ' + ended;
  patchPanel(ctx, state, parts);
  if (state.drawn.more === stamp && job.state !== 'dispatched') return;
  state.drawn.more = stamp;
  const quiet = (error) => {
    if (error.name !== 'AbortError' && error.status !== 404) failed(error);
  };
  ctx.api
    .get(path`/v1/jobs/${job.id}/steps`, {signal: ctx.signal})
    .then((a) => refresh(parts.steps, stepsPanel(a.steps || [])))
    .catch(quiet);
  ctx.api
    .get(path`/v1/jobs/${job.id}/evaluations`, {signal: ctx.signal})
    .then((a) => refresh(parts.evaluations, evaluationsPanel(a.evaluations || [])))
    .catch(quiet);
}

async function patchPanel(ctx, state, parts) {
  const job = state.job;
  const having = state.attempts.filter(hasPatch);
  const a = having.find((x) => x.attempt === state.patchOf) || having.at(-1);
  const stamp = having.map((x) => x.attempt).join() + ' ' + a?.attempt + ' ' + a?.outcome?.patch_hash;
  if (state.drawn.patch === stamp) return;
  state.drawn.patch = stamp;
  if (!a) return;
  const address = artifactAddress(job, a.attempt, 'patch');
  const raw = h('a', {href: address, target: '_blank', rel: 'noopener'}, 'Open the patch as text');
  const which =
    having.length > 1
      ? h(
          'select',
          {
            'aria-label': 'Attempt',
            value: String(a.attempt),
            onchange: (e) => {
              state.patchOf = Number(e.target.value);
              patchPanel(ctx, state, parts);
            },
          },
          having.map((x) => h('option', {value: String(x.attempt)}, 'Attempt ' + x.attempt)),
        )
      : null;
  try {
    const {text, cut} = await ctx.api.text(address, {signal: ctx.signal, max: PATCH});
    replace(
      parts.patch,
      panel(
        'Changes',
        {note: visible(a.outcome.diff_stat || ''), actions: [which, raw]},
        diffView(text, {cut, whole: raw.cloneNode(true), comments: ctx.can('operate') && hears(job) ? state.comments : null}),
      ),
    );
  } catch (error) {
    if (error.name === 'AbortError') return;
    state.drawn.patch = '';
    replace(parts.patch, panel('Changes', null, h('p', {class: 'field-problem'}, visible(error.detail || error.message))));
  }
}

const hasPatch = (a) => (a?.outcome?.artifacts || []).some((f) => f.name === 'patch' && f.bytes > 0);

// changesOf returns what an attempt that another one follows has changed, folded: it is fetched when somebody opens it. null: nothing.
export function changesOf(ctx, state, attempt) {
  const find = () => state.attempts.find((a) => a.attempt === attempt);
  if (find()?.outcome && !hasPatch(find())) return null;
  const body = h('div', {class: 'muted'}, 'Reading the changes\u2026');
  const el = h(
    'details',
    {
      class: 'log-changes',
      'data-testid': 'log-changes',
      ontoggle: async () => {
        if (!el.open || el.dataset.read) return;
        el.dataset.read = 'true';
        if (!hasPatch(find())) {
          replace(body, 'It changed nothing.');
          return;
        }
        try {
          const {text, cut} = await ctx.api.text(artifactAddress(state.job, attempt, 'patch'), {signal: ctx.signal, max: PATCH});
          body.classList.remove('muted');
          replace(body, diffView(text, {cut}));
        } catch (error) {
          delete el.dataset.read;
          replace(body, visible(error.detail || error.message));
        }
      },
    },
    h('summary', null, `What attempt ${attempt} changed`),
    body,
  );
  return el;
}

function stepsPanel(list) {
  return list.length
    ? panel(
        'Steps',
        {note: plural(list.length, 'durable step')},
        table({
          caption: 'Durable steps, by attempt computed or taken from the store',
          rows: list,
          key: (x) => x.id,
          testid: 'steps',
          columns: [
            {title: 'Step', head: true, cell: (x) => h('bdi', null, visible(x.id))},
            {
              title: 'Attempts',
              cell: (x) =>
                h(
                  'span',
                  {class: 'checks'},
                  (x.uses || []).map((u) =>
                    badge(u.kept, {
                      label:
                        '#' + u.attempt + ' ' + ({fresh: 'computed', store: 'from the store', refused: 'not stored'}[u.kept] || u.kept),
                      title: visible(u.why || ''),
                    }),
                  ),
                ),
            },
            {title: 'Stored', cell: (x) => (zero(x.stored_at) ? h('span', {class: 'muted'}, 'no longer') : timeOf(x.stored_at))},
          ],
        }),
      )
    : null;
}

const dimensions = [
  ['quality', 'Quality'],
  ['adherence', 'Adherence'],
  ['speed', 'Speed'],
  ['cost', 'Cost'],
  ['error_rate', 'Few errors'],
  ['revision_count', 'Few revisions'],
];

function evaluationsPanel(list) {
  return list.length
    ? panel(
        'Evaluation',
        {testid: 'evaluations'},
        list.map((e) =>
          h(
            'div',
            {class: 'panel-part'},
            h(
              'p',
              null,
              h('strong', {class: 'num'}, (e.composite || 0).toFixed(2)),
              h('span', {class: 'muted'}, ' ' + by(e.source) + ' in ' + visible(e.domain || 'default') + ', '),
              timeOf(e.at),
            ),
            h(
              'div',
              {class: 'score'},
              dimensions
                .filter(([d]) => e.vector?.[d] !== undefined)
                .map(([d, label]) => [
                  h('span', null, label),
                  bar(e.vector[d], {
                    tone: e.vector[d] >= 0.7 ? 'good' : e.vector[d] >= 0.4 ? 'ask' : 'bad',
                    label: label + ' ' + e.vector[d].toFixed(2),
                  }),
                  h('span', {class: 'num right'}, e.vector[d].toFixed(2)),
                  h('span', {class: 'muted wrap'}, visible(e.sources?.[d] || '')),
                ]),
            ),
            e.comment ? h('p', {class: 'wrap'}, visible(e.comment)) : null,
            (e.problems || []).map((p) => h('p', {class: 'field-problem'}, visible(p))),
          ),
        ),
      )
    : null;
}

// by says who judged: a person's source reads "by anna" already.
const by = (source) => (/^by /.test(source) ? visible(source) : 'by ' + visible(source));
