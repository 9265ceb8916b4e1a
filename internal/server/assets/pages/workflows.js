// Workflows: the list of batches whose jobs hang together, and one of them as a
// graph with live states.
//
// data-testid: workflows, workflow-row; graph-page, graph-progress, view-graph, view-table, graph, graph-node (data-state,
// data-name, data-key is the id), graph-part (the same), graph-expand, graph-edge (data-from, data-to), graph-find,
// zoom-in, zoom-out, zoom-fit, graph-table, graph-row

import {h, link, plural, replace, shortId, table, timeOf, visible} from '../dom.js';
import {Graph, nameOf} from '../graph.js';
import {progress} from '../states.js';

// ---- The list ----

const list = {
  title: 'Workflows',
  path: '/workflows',
  nav: 'workflows',
  async mount(root, ctx) {
    const box = h('div');
    replace(root, h('h1', {tabindex: '-1'}, 'Workflows'), h('div', {class: 'panel'}, box));
    const load = async () => {
      const {workflows} = await ctx.api.get('/v1/workflows', {signal: ctx.signal, query: {limit: 200}});
      replace(
        box,
        table({
          caption: 'Workflows, the newest first',
          testid: 'workflows',
          rows: workflows || [],
          key: (w) => w.batch,
          rowProps: () => ({'data-testid': 'workflow-row'}),
          empty: 'No workflows yet. A workflow is a job file with dependencies, a team or a pipeline.',
          columns: [
            {
              title: 'Workflow',
              head: true,
              class: 'grow',
              cell: (w) =>
                h(
                  'div',
                  null,
                  h(
                    'a',
                    {class: 'job-link', href: link`/workflows/${w.batch}`, 'data-key': w.batch, title: visible(w.source)},
                    h('bdi', null, nameOf(w)),
                  ),
                  h('div', {class: 'muted small'}, 'batch ', shortId(w.batch), memberships(w)),
                ),
            },
            {title: 'Progress', cell: (w) => progress(w.states, w.jobs)},
            {title: 'Jobs', class: 'num', cell: (w) => w.jobs},
            {title: 'Submitted', cell: (w) => timeOf(w.created_at)},
          ],
        }),
      );
    };
    await load();
    const again = ctx.soon(2000, () => load().catch(() => {}));
    for (const kind of ['job', 'gap']) ctx.stream.on(kind, again);
    ctx.every(20000, again); // the answer may be some seconds old
  },
};

const memberships = (w) => [
  w.teams?.length ? ' \u00b7 ' + plural(w.teams.length, 'team') : null,
  w.pipelines?.length ? ' \u00b7 ' + plural(w.pipelines.length, 'pipeline') : null,
];

// ---- The graph ----

const one = {
  title: 'Workflow',
  path: '/workflows/:batch',
  nav: 'workflows',
  async mount(root, ctx) {
    const view = new Graph(ctx);
    await view.load();
    replace(root, view.parts);
    view.show();
    const again = ctx.soon(2500, () => ctx.stream.during(() => view.load().then(() => view.show())).catch(() => {}));
    ctx.stream.on('gap', again);
    ctx.stream.on('job', (u) => {
      if (view.apply(u) || view.mayBeNew(u)) again();
    });
    ctx.onquery = () => view.show();
  },
};

export const pages = [list, one];
