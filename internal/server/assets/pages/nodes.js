// Nodes: the hosts that run jobs for the scheduler.
//
// data-testid: nodes, node-row (data-key is the name), node-state, node-cordoned, node-isolated, node-workers, node-cordon, node-uncordon, node-drain

import {cordon, drain, uncordon} from '../actions.js';
import {badge, bar, bytes, count, firstLine, h, refresh, table, timeOf, visible, zero} from '../dom.js';

const tones = {connected: 'good', 'cut off': 'ask', lost: 'bad', unknown: 'idle'};

export const page = {
  title: 'Nodes',
  path: '/nodes',
  async mount(root, ctx) {
    const box = h('div');
    const load = async () => {
      const {nodes} = await ctx.api.get('/v1/nodes', {signal: ctx.signal});
      refresh(box, list(nodes || [], ctx, load));
    };
    await load();
    root.append(h('h1', {tabindex: '-1'}, 'Nodes'), box);
    const again = ctx.soon(1000, () => load().catch(() => {}));
    for (const kind of ['job', 'core', 'gap']) ctx.stream.on(kind, again);
    ctx.every(5000, again); // a node that is cut off says nothing
  },
};

function list(nodes, ctx, load) {
  const may = ctx.can('operate');
  return table({
    caption: 'Nodes by name',
    testid: 'nodes',
    rows: nodes,
    key: (n) => n.name,
    rowProps: () => ({'data-testid': 'node-row'}),
    empty: 'No node has come since this scheduler leads. On another host, scheduler node makes it one.',
    columns: [
      {title: 'Node', head: true, cell: named},
      {title: 'State', cell: state},
      {title: 'Slots in use', cell: slots},
      {title: 'Labels', cell: labels},
      {title: 'Workers not ready', cell: workers},
      may ? {title: 'Actions', cell: (n) => actions(n, load)} : null,
    ].filter(Boolean),
    detail: (n) => {
      const said = [
        n.cordon ? h('div', null, 'Cordoned ', timeOf(n.cordon.since), because(n.cordon)) : null,
        n.isolation ? h('div', null, 'Isolated ', timeOf(n.isolation.since), because({why: n.isolation.message})) : null,
        ...(n.isolated_parts || []).map((i) => h('div', null, h('bdi', null, visible(i.scope)), ' isolated ', timeOf(i.since), because({why: i.message}))),
      ].filter(Boolean);
      return said.length ? said : null;
    },
  });
}

function named(n) {
  const about = [n.host, n.os && n.os + '/' + n.arch, n.cpus && count(n.cpus) + ' CPUs', n.memory && bytes(n.memory), n.version];
  return h(
    'div',
    null,
    h('bdi', null, visible(n.name)),
    h('div', {class: 'muted small'}, h('bdi', null, visible(about.filter(Boolean).join(' \u00b7 ')))),
  );
}

function state(n) {
  const seen = n.state === 'connected' || zero(n.seen) ? null : h('div', {class: 'muted small'}, 'seen ', timeOf(n.seen));
  return h(
    'div',
    {'data-testid': 'node-state'},
    badge(n.state, {tone: tones[n.state]}),
    n.cordon ? [' ', h('span', {'data-testid': 'node-cordoned'}, badge('cordoned', {tone: 'ask'}))] : null,
    n.isolation ? [' ', h('span', {'data-testid': 'node-isolated'}, badge('isolated', {tone: 'bad'}))] : null,
    n.lost ? h('div', {class: 'muted small'}, 'lost ', count(n.lost), n.lost === 1 ? ' time' : ' times') : null,
    seen,
  );
}

function slots(n) {
  const words = count(n.running) + ' of ' + count(n.slots);
  return [words, bar(n.slots ? n.running / n.slots : 0, {label: words})];
}

function labels(n) {
  const all = Object.entries(n.labels || {}).sort(([a], [b]) => (a < b ? -1 : 1));
  return all.length ? h('bdi', null, visible(all.map(([name, value]) => (value ? name + '=' + value : name)).join(', '))) : '\u2013';
}

function workers(n) {
  const missing = (n.workers || []).filter((w) => !w.ready);
  const shown = missing.length
    ? missing.map((w) => h('div', null, h('strong', null, visible(w.kind)), ' ', visible(firstLine(w.why || '', 120))))
    : h('span', {class: 'muted'}, n.workers?.length ? 'all are ready' : '\u2013');
  return h('div', {'data-testid': 'node-workers'}, shown);
}

function because({by, why}) {
  return [by ? [' by ', h('bdi', null, visible(by))] : null, why ? [': ', visible(firstLine(why, 500))] : null];
}

function actions(n, load) {
  const act = (testid, words, f) =>
    h('button', {type: 'button', 'data-testid': testid, 'data-key': testid + '-' + n.name, onclick: async () => (await f(n)) && load().catch(() => {})}, words);
  return h(
    'div',
    {class: 'node-actions'},
    n.cordon ? act('node-uncordon', 'Uncordon', uncordon) : act('node-cordon', 'Cordon\u2026', cordon),
    act('node-drain', 'Drain\u2026', drain),
  );
}
