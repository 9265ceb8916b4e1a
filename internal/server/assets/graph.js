// The page of one workflow: its jobs as a graph that is drawn in layers, and the same
// as a table.
//
// What comes in is the graph as GET /v1/workflows/{batch} answers, and after it the
// updates of jobs; a job's state is painted where it is drawn, and only another set of
// jobs is laid out anew. One job of the graph can be reached by Tab, the others from
// there by the arrow keys.

import {badge, facts, h, jobLink, link, panel, plural, replace, s, setText, shortId, since, table, timeOf, visible, zero} from './dom.js';
import {fold, layout} from './layout.js';
import {drawing, progress, stateOfUpdate, stateWord, states, tally, toneOf} from './states.js';

const WIDTH = 216,
  HEIGHT = 54,
  PARTS = 22,
  ROW = 22; // pixels of a node, its line of parts, a row of a part
const MOST_PARTS = 40; // rows of parts within a node; all are in the table
const ZOOMS = [0.25, 0.35, 0.5, 0.7, 0.85, 1, 1.25, 1.5, 2];
const PHONE = 640; // pixels; narrower, the table comes first

// nameOf returns what a workflow is called: the name of the file that it is from.
export const nameOf = (w) =>
  visible(
    String(w.source || '')
      .split('/')
      .filter(Boolean)
      .pop() || shortId(w.batch),
  );

// Graph is the page of one workflow.
export class Graph {
  constructor(ctx) {
    this.ctx = ctx;
    this.graph = null;
    this.open = new Set(); // names of nodes whose parts are shown
    this.zoom = 1;
    this.shape = ''; // of what is drawn: the same one is painted again, another laid out again
    this.drawn = new Map(); // id of a job → what shows it
    this.current = null; // id of the job that Tab leads to
    this.build();
  }

  build() {
    this.heading = h('h1', {tabindex: '-1'});
    this.head = h('div', {class: 'panel graph-head'});
    this.canvas = h('div', {class: 'graph-scroll', tabindex: '-1'});
    this.tableBox = h('div', {'data-testid': 'graph-table'});
    const tab = (name, label) =>
      h(
        'button',
        {
          type: 'button',
          'data-testid': 'view-' + name,
          onclick: () => {
            this.ctx.setQuery({...this.ctx.query, view: name});
            this.show();
          },
        },
        label,
      );
    this.tabs = {graph: tab('graph', 'Graph'), table: tab('table', 'Table')};
    this.find = h('input', {
      type: 'search',
      class: 'graph-find',
      placeholder: 'Find a job',
      'aria-label': 'Find a job of this workflow',
      'data-testid': 'graph-find',
      oninput: () => this.mark(),
      onkeydown: (event) => {
        if (event.key === 'Enter') this.jump();
      },
    });
    const zoom = (testid, label, text, f) =>
      h('button', {type: 'button', class: 'ghost', 'data-testid': testid, 'aria-label': label, title: label, onclick: f}, text);
    this.zooms = h(
      'div',
      {class: 'segmented', role: 'group', 'aria-label': 'Zoom'},
      zoom('zoom-out', 'Smaller', '\u2212', () => this.step(-1)),
      zoom('zoom-fit', 'Fit into the window', 'Fit', () => this.fit()),
      zoom('zoom-in', 'Larger', '+', () => this.step(1)),
    );
    this.legend = h('p', {class: 'graph-legend small muted'});
    this.graphPart = h(
      'div',
      null,
      this.legend,
      this.canvas,
      h(
        'p',
        {class: 'small muted'},
        'Arrow keys follow the lines, Enter opens a job, Space unfolds its parts. Drag to move, Ctrl and the wheel to zoom.',
      ),
    );
    this.parts = [
      h('div', {'data-testid': 'graph-page'}, h('p', {class: 'crumb'}, h('a', {href: '#/workflows'}, 'Workflows')), this.heading),
      this.head,
      panel(
        'Jobs',
        {
          actions: [
            this.find,
            this.zooms,
            h('div', {class: 'segmented', role: 'group', 'aria-label': 'Show as'}, this.tabs.graph, this.tabs.table),
          ],
        },
        this.graphPart,
        this.tableBox,
      ),
    ];
    this.canvas.addEventListener('keydown', (event) => this.keys(event));
    this.canvas.addEventListener(
      'wheel',
      (event) => {
        if (!event.ctrlKey && !event.metaKey) return;
        event.preventDefault();
        this.step(event.deltaY < 0 ? 1 : -1, event);
      },
      {passive: false},
    );
    for (const kind of ['pointerover', 'focusin'])
      this.canvas.addEventListener(kind, (event) => this.near(event.target.closest('[data-node]')?.dataset.node));
    for (const kind of ['pointerleave', 'focusout']) this.canvas.addEventListener(kind, () => this.near(null));
    drag(this.canvas);
  }

  async load() {
    const g = await this.ctx.api.get(this.ctx.path`/v1/workflows/${this.ctx.params.batch}`, {signal: this.ctx.signal});
    g.nodes ||= [];
    this.graph = g;
    this.byId = new Map(g.nodes.map((n) => [n.id, n]));
    this.names = new Set(g.nodes.map((n) => n.name));
    this.groups = fold(g.nodes);
  }

  // apply takes a job's update into the graph. It reports whether it was one of ours.
  apply(u) {
    const n = this.byId.get(u.job);
    if (!n || !u.state) return Boolean(n);
    const before = n.state;
    Object.assign(n, {
      state: stateOfUpdate(u),
      attempts: u.attempt ?? n.attempts,
      worker: u.worker || n.worker,
      note: u.text ?? '',
    });
    if (n.state === 'running' && !n.started_at) n.started_at = u.time;
    if (before !== n.state) {
      this.graph.states = {};
      for (const other of this.graph.nodes) this.graph.states[other.state] = (this.graph.states[other.state] || 0) + 1;
      this.showHead();
    }
    this.paint(n);
    return true;
  }

  // mayBeNew reports whether an unknown job may be a part that was made meanwhile.
  mayBeNew(u) {
    const of = String(u.name || '').replace(/[@+]\d+$/, '');
    return of !== u.name && this.names.has(of);
  }

  show() {
    const view = this.ctx.query.view || (window.innerWidth < PHONE ? 'table' : 'graph');
    for (const [name, button] of Object.entries(this.tabs)) button.setAttribute('aria-pressed', String(name === view));
    this.graphPart.hidden = this.zooms.hidden = view !== 'graph';
    this.tableBox.hidden = view !== 'table';
    this.showHead();
    if (view === 'graph') this.showGraph();
    else this.showTable();
    this.mark();
  }

  showHead() {
    const g = this.graph;
    this.ctx.setTitle(nameOf(g));
    setText(this.heading, nameOf(g));
    replace(
      this.head,
      progress(g.states, g.jobs, 'graph-progress'),
      facts([
        ['Source', h('bdi', {class: 'mono wrap'}, visible(g.source))],
        ['Batch', h('span', {class: 'mono wrap'}, g.batch)],
        ['Submitted', timeOf(g.created_at)],
        ['Jobs', h('a', {href: '#/jobs?batch=' + encodeURIComponent(g.batch)}, plural(g.jobs, 'job'))],
        g.teams?.length ? ['Teams', visible(g.teams.join(', '))] : null,
        g.pipelines?.length
          ? ['Pipelines', g.pipelines.map((p, i) => [i ? ', ' : '', h('a', {href: link`/pipelines/${p}`}, visible(p))])]
          : null,
      ]),
    );
  }

  // ---- Drawing ----

  showGraph() {
    const shape = JSON.stringify([
      this.groups.map((g) => [g.node.id, g.node.level, g.needs, this.open.has(g.node.name), g.parts.map((p) => p.id)]),
    ]);
    if (shape === this.shape) {
      for (const n of this.graph.nodes) this.paint(n);
      return;
    }
    const first = this.shape === '';
    this.shape = shape;
    const focused = this.canvas.contains(document.activeElement) ? this.current : null;
    const place = layout(
      this.groups.map((g) => ({id: g.node.name, level: g.node.level, height: this.heightOf(g), needs: g.needs})),
      {width: WIDTH},
    );
    this.place = place;
    this.drawn.clear();
    this.columns = [];
    const critical = new Map(this.groups.filter((g) => g.node.critical).map((g) => [g.node.name, g.node.level]));
    this.edges = place.lines.map((line) => {
      const on = critical.get(line.to) === critical.get(line.from) + 1; // the longest path leaves out no level
      return {
        ...line,
        on,
        el: s('path', {
          class: ['graph-edge', on && 'is-critical'],
          d: curve(line.points),
          'marker-end': on ? 'url(#arrow-critical)' : 'url(#arrow)',
          'data-testid': 'graph-edge',
          'data-from': line.from,
          'data-to': line.to,
        }),
      };
    });
    this.edges.sort((a, b) => a.on - b.on); // the critical path lies on top
    this.svg = s(
      'svg',
      {
        class: 'graph',
        viewBox: `0 0 ${place.width} ${place.height}`,
        'data-testid': 'graph',
        role: 'group',
        'aria-label': `${plural(this.groups.length, 'job')} and what each needs, from left to right`,
      },
      s('defs', null, arrow('arrow'), arrow('arrow-critical')),
      s(
        'g',
        {'aria-hidden': 'true'},
        this.edges.map((e) => e.el),
      ),
      this.groups.map((g) => this.node(g, place.places.get(g.node.name))),
    );
    for (const column of this.columns) column?.sort((a, b) => a.y - b.y);
    replace(this.canvas, this.svg);
    replace(
      this.legend,
      'Colours and signs: ',
      states.map((state) => h('span', {class: 'nowrap legend-item'}, drawing(state), ' ' + stateWord(state))),
      h(
        'span',
        {class: 'nowrap legend-item'},
        s('svg', {width: 24, height: 8, 'aria-hidden': 'true'}, s('path', {class: 'graph-edge is-critical', d: 'M0 4H24'})),
        ' critical path',
      ),
    );
    if (first) this.fit(true);
    else this.resize();
    if (!this.drawn.has(this.current)) this.current = this.columns.find((c) => c?.length)?.[0].id || null;
    for (const [id, d] of this.drawn) d.a.setAttribute('tabindex', id === this.current ? '0' : '-1');
    if (focused && this.drawn.has(focused)) this.drawn.get(focused).a.focus({preventScroll: true});
  }

  heightOf(g) {
    if (!g.parts.length) return HEIGHT;
    if (!this.open.has(g.node.name)) return HEIGHT + PARTS;
    return HEIGHT + PARTS + Math.min(g.parts.length, MOST_PARTS) * ROW + (g.parts.length > MOST_PARTS ? ROW : 0) + 4;
  }

  node(g, at) {
    const n = g.node;
    const d = {node: n, group: g};
    d.a = s(
      'a',
      {class: 'graph-link', href: link`/jobs/${n.id}`, 'data-key': n.id, 'data-testid': 'graph-node', 'data-name': n.name},
      s('rect', {class: 'graph-focus', x: -3, y: -3, width: WIDTH + 6, height: at.height + 6, rx: 9}),
      s('rect', {class: 'graph-box', width: WIDTH, height: at.height, rx: 6}),
      s('path', {class: 'graph-edge-bar', d: `M4 0.5H6V${at.height - 0.5}H4A3.5 3.5 0 0 1 0.5 ${at.height - 4}V4A3.5 3.5 0 0 1 4 0.5Z`}),
      (d.sign = s('g', {transform: 'translate(14 9)'})),
      s('text', {class: 'graph-name', x: 36, y: 22}, cut(visible(n.name), 21)),
      ' ',
      (d.line = s('text', {class: 'graph-line', x: 14, y: 42})),
    );
    d.title = s('title'); // beside the link, whose name it is not
    d.el = s(
      'g',
      {class: 'graph-node', transform: `translate(${at.x} ${at.y})`, 'data-node': n.name},
      d.title,
      d.a,
      g.parts.length ? this.partsOf(g, at, d) : null,
    );
    this.keep(n.id, d, at.level, at.y);
    this.paint(n);
    return d.el;
  }

  keep(id, d, level, y) {
    this.drawn.set(id, d);
    Object.assign(d, {id, level, y});
    (this.columns[level] ||= []).push(d);
  }

  // partsOf draws the line that counts a node's parts, and unfolded a row for each.
  partsOf(g, at, d) {
    const open = this.open.has(g.node.name);
    d.count = s('text', {class: 'graph-line', x: 32, y: HEIGHT + 13});
    d.toggle = s(
      'g',
      {
        class: 'graph-expand',
        role: 'button',
        tabindex: '-1',
        'aria-expanded': String(open),
        'data-testid': 'graph-expand',
        onclick: () => this.toggle(g.node.name),
      },
      s('rect', {class: 'graph-expand-box', x: 8, y: HEIGHT - 3, width: WIDTH - 16, height: PARTS, rx: 4}),
      s('path', {class: 'graph-chevron', d: open ? `M15 ${HEIGHT + 6}l4 4l4 -4` : `M17 ${HEIGHT + 4}l4 4l-4 4`}),
      d.count,
    );
    const rows = !open
      ? []
      : g.parts.slice(0, MOST_PARTS).map((p, i) => {
          const y = HEIGHT + PARTS + i * ROW;
          const part = {node: p, part: true};
          part.a = s(
            'a',
            {
              class: 'graph-link graph-part',
              href: link`/jobs/${p.id}`,
              'data-key': p.id,
              'data-testid': 'graph-part',
              'data-name': p.name,
              transform: `translate(8 ${y})`,
            },
            s('rect', {class: 'graph-focus', x: 0, y: 0, width: WIDTH - 16, height: ROW, rx: 4}),
            s('rect', {class: 'graph-part-box', x: 0, y: 0, width: WIDTH - 16, height: ROW, rx: 4}),
            (part.sign = s('g', {transform: 'translate(6 3)'})),
            (part.line = s('text', {class: 'graph-line', x: 26, y: 15})),
          );
          part.title = s('title');
          this.keep(p.id, part, at.level, at.y + y);
          this.paint(p);
          return s('g', null, part.title, part.a);
        });
    if (open && g.parts.length > MOST_PARTS) {
      rows.push(
        s(
          'text',
          {class: 'graph-line', x: 34, y: HEIGHT + PARTS + MOST_PARTS * ROW + 15},
          `and ${g.parts.length - MOST_PARTS} more, in the table`,
        ),
      );
    }
    return [d.toggle, rows];
  }

  // paint shows how a job stands, where it is drawn.
  paint(n) {
    const d = this.drawn.get(n.id);
    if (n.of) this.paintCount(n);
    if (!d) return;
    d.node = n;
    const word = stateWord(n.state);
    if (d.state !== n.state) {
      d.state = n.state;
      (d.part ? d.a : d.el).setAttribute('data-state', n.state);
      d.a.setAttribute('data-state', n.state);
      (d.part ? d.a : d.el).setAttribute(
        'class',
        `${d.part ? 'graph-link graph-part' : 'graph-node'} tone-${toneOf(n.state)}${n.critical ? ' is-critical' : ''}`,
      );
      replace(d.sign, drawing(n.state));
    }
    setText(
      d.line,
      d.part
        ? cut(visible(n.name), 15) + ' \u00b7 ' + word
        : cut(
            [word, n.kind === 'job' ? visible(n.worker) : n.kind.replace('_', ' '), n.if ? 'if \u2026' : '']
              .filter(Boolean)
              .join(' \u00b7 '),
            32,
          ),
    );
    const about = [
      d.part ? d.line.textContent : `${visible(n.name)} ${d.line.textContent}`,
      d.part ? 'worker ' + visible(n.worker) : '',
      n.attempts > 1 ? plural(n.attempts, 'attempt') : '',
      n.critical ? 'on the critical path' : '',
      n.if ? 'if ' + visible(n.if) : '',
      visible(n.note),
    ].filter(Boolean);
    setText(d.title, about.join('\n'));
    d.a.setAttribute('aria-label', about.join(', '));
    if (d.count) this.paintCount(n, d);
  }

  paintCount(n, d = null) {
    d ||= this.drawn.get(this.groups.find((g) => g.parts.some((p) => p.id === n.id))?.node.id);
    if (!d?.count) return;
    const counts = {};
    for (const p of d.group.parts) counts[this.byId.get(p.id)?.state || p.state] = (counts[this.byId.get(p.id)?.state || p.state] || 0) + 1;
    const words = tally(counts).map(([state, k]) => `${k} ${stateWord(state)}`);
    setText(d.count, cut(`${d.group.parts.length}: ${words.join(', ')}`, 27)); // it is the name of the button around it
  }

  toggle(name) {
    if (this.open.has(name)) this.open.delete(name);
    else this.open.add(name);
    this.showGraph();
    this.mark();
  }

  // near lifts the lines of one node out.
  near(name) {
    if (!this.edges || this.nearest === name) return;
    this.nearest = name;
    for (const e of this.edges) e.el.classList.toggle('is-near', Boolean(name) && (e.from === name || e.to === name));
  }

  // ---- Moving about ----

  resize() {
    this.svg.setAttribute('width', Math.round(this.place.width * this.zoom));
    this.svg.setAttribute('height', Math.round(this.place.height * this.zoom));
  }

  // step changes the zoom and keeps what is under the pointer, or in the middle, there.
  step(by, event) {
    const i = ZOOMS.findIndex((z) => z >= this.zoom - 1e-6);
    const next = ZOOMS[Math.max(0, Math.min(ZOOMS.length - 1, (i < 0 ? ZOOMS.length - 1 : i) + by))];
    const box = this.canvas.getBoundingClientRect();
    const x = event ? event.clientX - box.left : box.width / 2,
      y = event ? event.clientY - box.top : box.height / 2;
    const part = next / this.zoom;
    const left = (this.canvas.scrollLeft + x) * part - x,
      top = (this.canvas.scrollTop + y) * part - y;
    this.zoom = next;
    this.resize();
    this.canvas.scrollTo(left, top);
  }

  // fit shows the whole graph as large as it goes; at first not so small that nothing
  // could be read.
  fit(first = false) {
    const wide = this.canvas.clientWidth || 800,
      tall = Math.max(320, window.innerHeight * 0.7);
    const fits = Math.min(1, wide / this.place.width, tall / this.place.height);
    this.zoom = Math.max(first ? 0.85 : 0.1, fits);
    this.resize();
    const at = first && this.place.places.get(this.newsworthy()?.name);
    if (at) this.canvas.scrollTo(at.x * this.zoom - wide / 3, (at.y + at.height / 2) * this.zoom - this.canvas.clientHeight / 2);
    else this.canvas.scrollTo(0, 0);
  }

  // newsworthy returns the job that is looked at first: one that runs or waits for a
  // person, else the beginning of the critical path.
  newsworthy() {
    const nodes = this.groups.map((g) => g.node).sort((a, b) => a.level - b.level);
    return (
      ['running', 'waiting_approval'].map((state) => nodes.find((n) => n.state === state)).find(Boolean) || nodes.find((n) => n.critical)
    );
  }

  keys(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const d =
      this.drawn.get(event.target.closest?.('[data-key]')?.dataset.key) ||
      (event.target.closest?.('.graph-expand') ? this.drawn.get(this.current) : null);
    if (!d) return;
    if (event.key === ' ') {
      event.preventDefault();
      const top = d.part ? this.groups.find((g) => g.parts.some((p) => p.id === d.id)) : d.group;
      if (!top.parts.length) return;
      this.toggle(top.node.name);
      this.go(this.drawn.get(top.node.id));
      return;
    }
    const column = this.columns[d.level];
    const along = (ids) =>
      ids
        .map((name) => this.drawn.get(this.groups.find((g) => g.node.name === name)?.node.id))
        .filter(Boolean)
        .sort((a, b) => Math.abs(a.y - d.y) - Math.abs(b.y - d.y))[0];
    const group = d.group || this.groups.find((g) => g.parts.some((p) => p.id === d.id));
    const to = {
      ArrowUp: () => column[column.indexOf(d) - 1],
      ArrowDown: () => column[column.indexOf(d) + 1],
      ArrowLeft: () => along(group.needs),
      ArrowRight: () => along(this.groups.filter((g) => g.needs.includes(group.node.name)).map((g) => g.node.name)),
      Home: () => this.columns.find((c) => c?.length)[0],
      End: () => this.columns.at(-1)[0],
    }[event.key];
    if (!to) return;
    event.preventDefault();
    this.go(to());
  }

  go(d) {
    if (!d) return;
    this.drawn.get(this.current)?.a.setAttribute('tabindex', '-1');
    this.current = d.id;
    d.a.setAttribute('tabindex', '0');
    d.a.focus({preventScroll: true});
    d.a.scrollIntoView({block: 'nearest', inline: 'nearest'});
  }

  // mark shows what is looked for, jump goes to the first of it.
  mark() {
    const word = this.find.value.trim().toLowerCase();
    for (const d of this.drawn.values()) (d.part ? d.a : d.el).classList.toggle('is-faded', Boolean(word) && !matches(d.node, word));
    for (const row of this.tableBox.querySelectorAll('tbody tr'))
      row.hidden = Boolean(word) && !matches(this.byId.get(row.dataset.key), word);
  }

  jump() {
    const word = this.find.value.trim().toLowerCase();
    const found = [...this.drawn.values()].find((d) => matches(d.node, word));
    if (word && found && !this.graphPart.hidden) this.go(found);
  }

  // ---- The same as a table ----

  showTable() {
    const rows = this.groups.flatMap((g) => [g.node, ...g.parts]);
    replace(
      this.tableBox,
      table({
        caption: 'Jobs of the workflow, level by level',
        rows: rows.sort((a, b) => this.rank(a) - this.rank(b)),
        key: (n) => n.id,
        empty: 'It has no jobs.',
        rowProps: (n) => ({'data-testid': 'graph-row', 'data-state': n.state}),
        columns: [
          {
            title: 'Job',
            head: true,
            class: 'grow',
            cell: (n) =>
              h(
                'div',
                {class: n.of ? 'is-part' : null},
                jobLink(n.id, n.name, {'data-key': n.id}),
                n.critical ? h('span', {class: 'mark-critical small'}, 'critical path') : null,
              ),
          },
          {title: 'State', cell: (n) => badge(n.state)},
          {title: 'Kind', cell: (n) => n.kind.replace('_', ' ')},
          {title: 'Level', class: 'num', cell: (n) => n.level},
          {
            title: 'Needs',
            cell: (n) =>
              n.needs?.length || n.if
                ? h(
                    'span',
                    {class: 'wrap'},
                    visible((n.needs || []).join(', ')),
                    n.if ? h('div', {class: 'muted small mono wrap'}, 'if ' + visible(n.if)) : null,
                  )
                : null,
          },
          {title: 'Worker', cell: (n) => visible(n.worker)},
          {title: 'Attempts', class: 'num', cell: (n) => n.attempts},
          {title: 'Took', class: 'num', cell: (n) => (zero(n.started_at) ? null : since(n.started_at, n.ended_at))},
          {title: 'Why', class: 'wrap', cell: (n) => (n.note ? visible(n.note) : null)},
        ],
      }),
    );
  }

  // rank orders rows: by level, each node followed by its parts.
  rank(n) {
    this.ranks =
      this.ranksOf === this.groups
        ? this.ranks
        : new Map(
            [...this.groups]
              .sort((a, b) => a.node.level - b.node.level)
              .flatMap((g) => [g.node, ...g.parts])
              .map((node, i) => [node.id, i]),
          );
    this.ranksOf = this.groups;
    return this.ranks.get(n.id);
  }
}

const matches = (n, word) =>
  Boolean(n) &&
  [n.name, n.worker, n.state, n.note, n.id].some((t) =>
    String(t || '')
      .toLowerCase()
      .includes(word),
  );

const cut = (text, most) => (text.length > most ? text.slice(0, most - 1) + '\u2026' : text);

function arrow(id) {
  return s(
    'marker',
    {id, viewBox: '0 0 8 8', refX: 7, refY: 4, markerWidth: 8, markerHeight: 8, markerUnits: 'userSpaceOnUse', orient: 'auto'},
    s('path', {class: id === 'arrow' ? 'graph-arrow' : 'graph-arrow is-critical', d: 'M0 0.5L7.5 4L0 7.5Z'}),
  );
}

// curve returns a way through points, which lie from left to right: level along a
// box, bent between two.
function curve(points) {
  let d = `M${points[0].x} ${points[0].y}`;
  for (let i = 1; i < points.length; i++) {
    const a = points[i - 1],
      b = points[i];
    const middle = (a.x + b.x) / 2;
    d += a.y === b.y ? `H${b.x}` : `C${middle} ${a.y} ${middle} ${b.y} ${b.x} ${b.y}`;
  }
  return d;
}

// drag lets a box that scrolls be moved with the mouse; a finger scrolls it anyway.
function drag(box) {
  let from = null;
  box.addEventListener('pointerdown', (event) => {
    if (event.button !== 0 || event.pointerType !== 'mouse' || event.target.closest('a, [role="button"]')) return;
    from = {x: event.clientX + box.scrollLeft, y: event.clientY + box.scrollTop};
    box.setPointerCapture(event.pointerId);
    box.classList.add('is-dragged');
  });
  box.addEventListener('pointermove', (event) => {
    if (from) box.scrollTo(from.x - event.clientX, from.y - event.clientY);
  });
  for (const kind of ['pointerup', 'pointercancel'])
    box.addEventListener(kind, () => {
      from = null;
      box.classList.remove('is-dragged');
    });
}
