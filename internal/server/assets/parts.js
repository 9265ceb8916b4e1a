// The parts that pages are made of: badges, tables, panels, bars, icons.

import {h, s, link, visible} from './dom.js';
import {percent} from './format.js';

const tones = {
  pending: 'idle',
  running: 'run',
  checkpointed: 'run',
  waiting_approval: 'ask',
  completed: 'good',
  succeeded: 'good',
  fresh: 'good',
  closed: 'good',
  normal: 'good',
  ready: 'good',
  up: 'good',
  failed: 'bad',
  open: 'bad',
  refused: 'bad',
  dead: 'bad',
  isolated: 'bad',
  cancelled: 'off',
  store: 'idle',
  'half-open': 'ask',
  draining: 'ask',
  starting: 'ask',
};
const words = {waiting_approval: 'waiting for approval'};

// badge returns a state as a small coloured label. Its colour never says what its
// words do not. tone overrides the colour: good, bad, run, ask, idle, off.
export function badge(state, {tone, label, title} = {}) {
  return h(
    'span',
    {class: ['badge', 'tone-' + (tone || tones[state] || 'idle')], 'data-state': state, title},
    visible(label || words[state] || String(state).replaceAll('_', ' ')),
  );
}

// shortId returns the end of an id, which tells ids of one moment apart.
export const shortId = (id) => visible(String(id ?? '').slice(-8));

// jobLink returns a link to a job's page.
export function jobLink(id, name, props) {
  return h('a', {href: link`/jobs/${id}`, class: 'job-link', title: id, ...props}, h('bdi', null, visible(name || shortId(id))));
}

// table returns a table in a box of its own that scrolls sideways. columns are
// {title, class, cell(row), head (the cell names the row)}; rows any values;
// key(row) names a row; detail(row), if it returns something, stands in a line of its
// own below the row. On a phone the rows are cards if cards is set.
export function table({caption, columns, rows, key, cards = true, empty = 'Nothing here.', testid, rowProps, detail}) {
  if (!rows.length) return h('p', {class: 'empty', 'data-testid': testid ? testid + '-empty' : null}, empty);
  return h(
    'div',
    {
      class: ['table-box', cards && 'cards'],
      tabindex: cards ? null : '0',
      role: cards ? null : 'region',
      'aria-label': cards ? null : caption,
    },
    h(
      'table',
      {'data-testid': testid},
      h('caption', {class: 'sr-only'}, caption),
      h(
        'thead',
        null,
        h(
          'tr',
          null,
          columns.map((c) => h('th', {scope: 'col', class: c.class}, c.title)),
        ),
      ),
      h(
        'tbody',
        null,
        rows.map((row, i) => {
          const below = detail?.(row, i);
          return [
            h(
              'tr',
              {'data-key': key ? key(row) : null, ...(rowProps ? rowProps(row, i) : null)},
              columns.map((c) =>
                h(c.head ? 'th' : 'td', {scope: c.head ? 'row' : null, class: c.class, 'data-label': c.title}, c.cell(row, i)),
              ),
            ),
            below ? h('tr', {class: 'detail'}, h('td', {colspan: String(columns.length)}, below)) : null,
          ];
        }),
      ),
    ),
  );
}

// panel returns a section with a heading; actions stand to the right of it.
export function panel(title, props, ...children) {
  const {actions, testid, id, note} = props || {};
  return h(
    'section',
    {class: 'panel', 'data-testid': testid, 'aria-label': title, id},
    h(
      'header',
      {class: 'panel-head'},
      h('h2', null, title),
      note ? h('span', {class: 'muted'}, note) : null,
      actions ? h('div', {class: 'actions'}, actions) : null,
    ),
    children,
  );
}

// facts returns pairs of a name and what it is; pairs without a value are left out.
export function facts(pairs) {
  return h(
    'dl',
    {class: 'facts'},
    pairs
      .filter((p) => p && p[1] !== null && p[1] !== undefined && p[1] !== '')
      .map(([name, value]) => h('div', null, h('dt', null, name), h('dd', null, value))),
  );
}

// bar returns a horizontal bar that is filled by part of 1, with a mark at target;
// label says the same in words.
export function bar(part, {target, tone, label} = {}) {
  const pct = (x) => Math.max(0, Math.min(100, (x || 0) * 100)).toFixed(1) + '%';
  return h(
    'div',
    {class: ['bar', tone && 'tone-' + tone], role: 'img', 'aria-label': label || percent(part), style: {'--part': pct(part)}},
    h('span', {class: 'bar-fill'}),
    target === undefined || target === null ? null : h('span', {class: 'bar-mark', style: {'--at': pct(target)}}),
  );
}

// icon returns one of the few drawings of this page.
const icons = {
  overview: 'M2 2h5v6H2zM9 2h5v3H9zM9 7h5v7H9zM2 10h5v4H2z',
  jobs: 'M2 4h12M2 8h12M2 12h8',
  submit: 'M8 3v10M3 8h10',
  workflows: 'M4 4m-2 0a2 2 0 1 0 4 0a2 2 0 1 0 -4 0M12 12m-2 0a2 2 0 1 0 4 0a2 2 0 1 0 -4 0M4 6v3a3 3 0 0 0 3 3h3',
  pipelines: 'M1 5h4l2 3 2-3h6M1 11h4l2-3 2 3h6',
  approvals: 'M2 8l4 4 8-9',
  letters: 'M2 4h12v9H2zM2 4l6 5 6-5',
  agents: 'M8 5m-3 0a3 3 0 1 0 6 0a3 3 0 1 0 -6 0M2 14a6 5 0 0 1 12 0',
  nodes: 'M2 2h12v5H2zM2 9h12v5H2zM4.5 4.5h0M4.5 11.5h0',
  timeline: 'M2 3h6M5 8h7M8 13h6',
  theme: 'M8 2a6 6 0 1 0 6 6a4.5 4.5 0 0 1 -6 -6z',
  exit: 'M6 2H3v12h3M10 4l4 4-4 4M14 8H6',
  menu: 'M2 4h12M2 8h12M2 12h12',
  close: 'M4 4l8 8M12 4l-8 8',
  stop: 'M4 4h8v8H4z',
  bell: 'M4 11V7a4 4 0 0 1 8 0v4l1 1.5H3zM7 14.5h2',
  more: 'M6 3l5 5-5 5',
};
export function icon(name) {
  return s(
    'svg',
    {class: 'icon', viewBox: '0 0 16 16', width: 16, height: 16, 'aria-hidden': 'true', focusable: 'false'},
    s('path', {d: icons[name] || ''}),
  );
}
