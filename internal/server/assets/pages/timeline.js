// Timeline: what ran lately, by worker. Until somebody chooses a span, the page
// shows one that fits the latest attempts.
//
// data-testid: timeline (data-bars is how many are drawn, data-rows in how many rows, data-span the span), timeline-canvas,
// timeline-detail, timeline-tip, span-2m, span-15m, span-1h, span-6h, span-24h, timeline-earlier, timeline-later, timeline-now,
// timeline-rows, timeline-table, timeline-row, timeline-more

import {timeLabel} from '../chart.js';
import {badge, clockTime, count, duration, h, jobLink, plural, replace, setText, visible} from '../dom.js';
import {fitSpan, pack, timeTicks} from '../packing.js';
import {stateWord, toneOf} from '../states.js';

const MINUTE = 60000;
const SPANS = [
  ['2m', '2 min', 2 * MINUTE],
  ['15m', '15 min', 15 * MINUTE],
  ['1h', '1 h', 60 * MINUTE],
  ['6h', '6 h', 360 * MINUTE],
  ['24h', '24 h', 1440 * MINUTE],
];
const LATEST = 20; // attempts that a span is chosen by
const MOST = 5000; // bars
const AXIS = 24,
  LANE = 26,
  ROW = 15,
  BAR = 12,
  PAD = 8; // pixels: the axis, a lane's title, a row, a bar, below a lane
const LEAST = 7; // pixels that a bar is long at least
const LANE_ROWS = 12; // of a lane, unless all are asked for
const AHEAD = 0.02; // part of the span that is left free beyond now
const ROWS = 100; // of a page of the table

// What marks an outcome beside its colour, drawn over the bar.
const marks = {
  completed: null,
  running: 'open',
  failed: 'slashes',
  cancelled: 'dots',
  checkpointed: 'bars',
  waiting_approval: 'waves',
  pending: 'dots',
};
const outcomes = ['completed', 'failed', 'running', 'waiting_approval', 'checkpointed', 'cancelled'];

export const page = {
  title: 'Timeline',
  path: '/timeline',
  nav: 'timeline',
  async mount(root, ctx) {
    const view = new Timeline(ctx);
    await view.fit();
    await view.load();
    replace(root, view.parts());
    const again = async () => {
      try {
        await ctx.stream.during(async () => {
          await view.fit();
          await view.load();
        });
      } catch {
        /* the connection's state tells of it */
      }
    };
    ctx.stream.on('job', (u) => view.apply(u));
    ctx.stream.on('gap', ctx.soon(1000, again));
    view.check = ctx.soon(10000, again);
    ctx.every(60000, again);
    ctx.every(1000, () => view.tick());
    return view.watch();
  },
};

class Timeline {
  constructor(ctx) {
    this.ctx = ctx;
    this.bars = new Map(); // JOB/ATTEMPT → bar
    this.span = SPANS.find(([name]) => name === ctx.query.span) || null;
    this.fits = !this.span; // the page chooses the span
    this.until = Date.parse(ctx.query.until) || null; // null: it goes along with the time
    this.chosen = null; // the bar that is told about
    this.width = 0;
    this.tablePages = 1;
    this.allRows = false;
    this.build();
  }

  build() {
    const button = (testid, label, f, text = label) =>
      h('button', {type: 'button', 'data-testid': testid, 'aria-label': label, onclick: f}, text);
    this.zoom = SPANS.map((span) =>
      h('button', {type: 'button', 'data-testid': 'span-' + span[0], onclick: () => this.go({span})}, span[1]),
    );
    this.rowsButton = h(
      'button',
      {
        type: 'button',
        hidden: true,
        'aria-pressed': 'false',
        'data-testid': 'timeline-rows',
        onclick: () => {
          this.allRows = !this.allRows;
          this.rowsButton.setAttribute('aria-pressed', String(this.allRows));
          this.arrange();
        },
      },
      'All rows',
    );
    this.nowButton = button('timeline-now', 'Go to now', () => this.go({until: null}), 'Now');
    this.laterButton = button('timeline-later', 'Later', () => this.shift(0.5), '\u203a');
    this.earlierButton = button('timeline-earlier', 'Earlier', () => this.shift(-0.5), '\u2039');
    this.range = h('p', {class: 'muted'});
    this.canvas = h('canvas', {'data-testid': 'timeline-canvas', 'aria-hidden': 'true'});
    this.ring = h('div', {class: 'timeline-ring', hidden: true});
    this.nowLine = h('div', {class: 'timeline-now', hidden: true});
    this.tip = h('div', {class: 'timeline-tip', hidden: true, 'data-testid': 'timeline-tip'});
    this.stage = h(
      'div',
      {
        class: 'timeline',
        tabindex: '0',
        role: 'group',
        'data-testid': 'timeline',
        'aria-label': 'Attempts by worker. Arrow keys go from bar to bar, Enter opens the job. The table below has the same data.',
      },
      this.canvas,
      this.nowLine,
      this.ring,
      this.tip,
    );
    this.detail = h('p', {class: 'timeline-detail', 'aria-live': 'polite', 'data-testid': 'timeline-detail'});
    this.body = h('div');
    this.tableDetails = h(
      'details',
      {class: 'panel', 'data-testid': 'timeline-table', ontoggle: () => this.showTable()},
      h('summary', null, 'The same as a table'),
      this.body,
    );
    this.more = h(
      'p',
      {class: 'notice tone-ask', hidden: true},
      `More than ${count(MOST)} attempts ran within this time; the earliest are left out. Look at a shorter span.`,
    );
    this.legend = h(
      'ul',
      {class: 'chart-legend'},
      outcomes.map((state) => {
        const sample = h('canvas', {width: 56, height: 24, class: 'timeline-sample', 'aria-hidden': 'true'});
        return h('li', {'data-state': state}, sample, stateWord(state));
      }),
    );
    this.stage.addEventListener('pointermove', (event) => this.hover(event));
    this.stage.addEventListener('pointerleave', () => this.choose(null));
    this.stage.addEventListener('click', (event) => {
      const bar = this.hit(event);
      if (bar) this.open(bar);
    });
    this.stage.addEventListener('keydown', (event) => this.keys(event));
    this.stage.addEventListener('blur', () => this.choose(null));
  }

  parts() {
    return [
      h(
        'div',
        {class: 'page-head'},
        h('h1', {tabindex: '-1'}, 'Timeline'),
        this.range,
        h(
          'div',
          {class: 'actions'},
          h('div', {class: 'segmented', role: 'group', 'aria-label': 'Move'}, this.earlierButton, this.nowButton, this.laterButton),
          h('div', {class: 'segmented', role: 'group', 'aria-label': 'How long'}, this.zoom),
          this.rowsButton,
        ),
      ),
      this.more,
      h('div', {class: 'panel'}, this.legend, this.stage, this.detail),
      this.tableDetails,
    ];
  }

  // watch draws whenever the room or the colours change; the function it returns ends that.
  watch() {
    const sizes = new ResizeObserver(([entry]) => {
      this.width = Math.floor(entry.contentRect.width);
      this.arrange();
    });
    sizes.observe(this.stage);
    const colours = new MutationObserver(() => this.recolour());
    colours.observe(document.documentElement, {attributes: true, attributeFilter: ['data-theme']});
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.recolour(), {signal: this.ctx.signal});
    this.recolour();
    this.tell();
    return () => {
      sizes.disconnect();
      colours.disconnect();
      clearTimeout(this.later);
      cancelAnimationFrame(this.frame);
    };
  }

  // ---- What there is ----

  get length() {
    return this.span[2];
  }
  get end() {
    return this.until ?? Date.now() + this.length * AHEAD;
  }
  get begin() {
    return this.end - this.length;
  }

  // fit chooses the span by the latest attempts, unless somebody has chosen one.
  async fit() {
    if (!this.fits) return;
    const longest = SPANS.at(-1)[2],
      until = this.until ?? Date.now();
    const {attempts} = await this.ctx.api.get('/v1/timeline', {
      signal: this.ctx.signal,
      query: {since: new Date(until - longest).toISOString(), until: new Date(until).toISOString(), limit: LATEST},
    });
    const lengths = SPANS.map((span) => span[2]);
    const fits = fitSpan(
      (attempts || []).map((a) => Date.parse(a.began)),
      until,
      lengths,
      60 * MINUTE,
    );
    if (this.fits) this.span = SPANS[lengths.indexOf(fits)]; // nobody chose meanwhile
  }

  async load() {
    const turn = (this.turn = (this.turn || 0) + 1);
    this.stage.setAttribute('aria-busy', 'true');
    try {
      const {attempts, more} = await this.ctx.api.get('/v1/timeline', {
        signal: this.ctx.signal,
        query: {since: new Date(this.begin).toISOString(), until: new Date(this.end).toISOString(), limit: MOST},
      });
      if (turn !== this.turn) return;
      this.bars = new Map((attempts || []).map((a) => [`${a.job}/${a.attempt}`, bar(a)]));
      this.more.hidden = !more;
      this.chosen = this.chosen && this.bars.get(this.chosen.key);
      this.arrange();
      this.showTable();
    } finally {
      if (turn === this.turn) this.stage.setAttribute('aria-busy', 'false');
    }
  }

  // apply takes a job's update in; what it cannot tell is fetched a little later.
  apply(u) {
    if (!u?.job || !u.attempt) return;
    const key = `${u.job}/${u.attempt}`,
      at = Date.parse(u.time) || Date.now();
    const old = this.bars.get(key);
    if (u.state === 'running' || (u.state === 'pending' && u.entry_state === 'dispatched')) {
      if (old || this.until !== null) return;
      this.bars.set(
        key,
        bar({job: u.job, name: u.name, tenant: u.tenant, worker: u.worker, attempt: u.attempt, state: 'running', began: u.time}),
      );
    } else if (old && old.to === null) {
      Object.assign(old, {to: at, state: u.state === 'pending' ? 'failed' : u.state});
      this.check?.();
    } else {
      return;
    }
    this.later ??= setTimeout(() => {
      this.later = null;
      this.arrange();
    }, 200);
  }

  go({span = this.span, until = this.until}) {
    Object.assign(this, {span, until, fits: false});
    this.ctx.setQuery({span: span[0], until: until === null ? '' : new Date(until).toISOString()});
    this.arrange();
    this.load().catch((error) => {
      if (error.name !== 'AbortError') setText(this.detail, visible(error.detail || error.message));
    });
  }

  shift(part) {
    const until = Math.round(this.end + part * this.length);
    this.go({until: until >= Date.now() ? null : until});
  }

  // ---- Drawing ----

  // arrange gives each bar its row: lanes by worker, in each as few rows as it takes.
  arrange() {
    for (const [i, button] of this.zoom.entries()) button.setAttribute('aria-pressed', String(SPANS[i] === this.span));
    this.nowButton.setAttribute('aria-pressed', String(this.until === null));
    this.laterButton.disabled = this.until === null;
    if (!this.width) return;
    const {begin, end} = this,
      pixel = (end - begin) / this.width,
      now = Date.now();
    const kinds = new Map();
    for (const b of this.bars.values()) {
      const to = b.to ?? Math.max(now, b.from);
      if (to < begin || b.from > end) continue;
      if (!kinds.has(b.worker)) kinds.set(b.worker, []);
      kinds.get(b.worker).push({from: b.from, to: Math.max(to, b.from + LEAST * pixel), bar: b});
    }
    let top = AXIS;
    this.lanes = [...kinds]
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([worker, spans]) => {
        const {rows, row, over} = pack(spans, 2 * pixel, this.allRows ? Infinity : LANE_ROWS);
        const lane = {
          worker,
          top,
          rows,
          over,
          bars: spans
            .map((span) => {
              span.bar.y = top + LANE + row.get(span) * ROW;
              return span.bar;
            })
            .sort((a, b) => a.from - b.from),
          running: spans.filter((span) => span.bar.to === null).length,
        };
        top += LANE + rows * ROW + PAD;
        return lane;
      });
    this.height = Math.max(top, AXIS + 60);
    this.stage.dataset.bars = this.lanes.reduce((sum, lane) => sum + lane.bars.length, 0);
    this.stage.dataset.rows = this.lanes.reduce((sum, lane) => sum + lane.rows, 0);
    this.stage.dataset.span = this.span[0];
    this.rowsButton.hidden = !this.allRows && this.lanes.every((lane) => lane.over === 0);
    this.draw();
  }

  recolour() {
    const style = getComputedStyle(this.stage);
    const value = (name) => style.getPropertyValue(name).trim();
    this.colours = {
      text: value('--text'),
      muted: value('--muted'),
      line: value('--line'),
      panel: value('--panel'),
      font: `12px ${value('--sans') || 'sans-serif'}`,
      tones: {},
    };
    for (const tone of ['good', 'bad', 'run', 'ask', 'idle', 'off']) this.colours.tones[tone] = value(`--${tone}-fill`);
    this.patterns = null;
    for (const li of this.legend.children) {
      const sample = li.querySelector('canvas'),
        g = sample.getContext('2d');
      g.setTransform(2, 0, 0, 2, 0, 0);
      g.clearRect(0, 0, 28, 12);
      this.patternsOf(g, 2);
      this.paint(g, {state: li.dataset.state}, 0, 0, 28, 12);
    }
    this.patterns = null;
    this.draw();
  }

  // patternsOf makes the patterns that tell outcomes apart without their colours.
  patternsOf(g, scale) {
    if (this.patterns) return this.patterns;
    const tile = (paint) => {
      const canvas = h('canvas', {width: 8 * scale, height: 8 * scale}),
        t = canvas.getContext('2d');
      t.scale(scale, scale);
      t.strokeStyle = t.fillStyle = this.colours.panel;
      t.lineWidth = 1.6;
      t.beginPath();
      paint(t);
      t.stroke();
      const pattern = g.createPattern(canvas, 'repeat');
      pattern.setTransform(new DOMMatrix([1 / scale, 0, 0, 1 / scale, 0, 0]));
      return pattern;
    };
    this.patterns = {
      slashes: tile((t) => {
        for (const x of [-8, 0, 8]) {
          t.moveTo(x - 1, 9);
          t.lineTo(x + 9, -1);
        }
      }),
      dots: tile((t) => {
        t.fillRect(1, 1, 2, 2);
        t.fillRect(5, 5, 2, 2);
      }),
      bars: tile((t) => {
        t.moveTo(3, 0);
        t.lineTo(3, 8);
      }),
      waves: tile((t) => {
        t.moveTo(-1, 5);
        t.lineTo(2, 2);
        t.lineTo(6, 6);
        t.lineTo(9, 3);
      }),
    };
    return this.patterns;
  }

  draw() {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this.drawNow());
  }

  drawNow() {
    if (!this.lanes || !this.colours || !this.width) return;
    const scale = Math.min(2, window.devicePixelRatio || 1),
      {width, height, colours} = this,
      {begin, end} = this;
    if (this.canvas.width !== Math.round(width * scale) || this.canvas.height !== Math.round(height * scale)) {
      this.canvas.width = Math.round(width * scale);
      this.canvas.height = Math.round(height * scale);
      this.canvas.style.setProperty('width', width + 'px');
      this.canvas.style.setProperty('height', height + 'px');
      this.patterns = null;
    }
    const g = this.canvas.getContext('2d');
    g.setTransform(scale, 0, 0, scale, 0, 0);
    g.clearRect(0, 0, width, height);
    this.patternsOf(g, scale);
    const x = (t) => ((t - begin) / (end - begin)) * width;
    g.font = colours.font;
    g.textBaseline = 'middle';
    const ticks = timeTicks(begin, end, Math.max(2, Math.floor(width / 80)));
    g.fillStyle = colours.muted;
    g.strokeStyle = colours.line;
    g.lineWidth = 1;
    g.beginPath();
    for (const t of ticks.at) {
      const at = Math.round(x(t)) + 0.5;
      g.moveTo(at, AXIS);
      g.lineTo(at, height);
      const label = timeLabel(t, ticks.step),
        wide = g.measureText(label).width;
      if (at - wide / 2 >= 0 && at + wide / 2 <= width) g.fillText(label, at - wide / 2, AXIS / 2);
    }
    for (const lane of this.lanes) {
      g.moveTo(0, Math.round(lane.top) + 0.5);
      g.lineTo(width, Math.round(lane.top) + 0.5);
    }
    g.stroke();
    const now = Date.now();
    for (const lane of this.lanes) {
      for (const b of lane.bars) {
        const left = Math.max(-4, x(b.from)),
          right = Math.min(width + 4, x(b.to ?? Math.max(now, b.from)));
        if (right < 0 || left > width) continue;
        this.paint(g, b, left, b.y, Math.max(LEAST, right - left), BAR);
      }
      this.title(g, lane);
    }
    if (!this.lanes.length) {
      g.fillStyle = colours.muted;
      g.fillText('Nothing ran within this time.', 8, AXIS + 28);
    }
    this.drawnAt = now;
    this.place();
    setText(
      this.range,
      `${clockTime(new Date(begin).toISOString())} to ${this.until === null ? 'now' : clockTime(new Date(end).toISOString())}, ${plural(Number(this.stage.dataset.bars), 'attempt')}`,
    );
  }

  // place puts the line of now and the ring around the chosen bar, which lie over the
  // drawing, so that neither needs another one.
  place() {
    const {begin, end, width, chosen: c} = this,
      now = Date.now(),
      x = (t) => ((t - begin) / (end - begin)) * width;
    this.nowLine.hidden = !(now >= begin && now <= end);
    this.nowLine.style.setProperty('transform', `translateX(${x(now).toFixed(1)}px)`);
    const left = c ? Math.max(1, x(c.from)) : 0,
      right = c ? Math.min(width - 1, Math.max(x(c.to ?? now), left + LEAST)) : 0;
    this.ring.hidden = !c?.y || right < left;
    if (this.ring.hidden) return;
    for (const [name, value] of [
      ['left', left - 3],
      ['top', c.y - 3],
      ['width', right - left + 6],
      ['height', BAR + 6],
    ])
      this.ring.style.setProperty(name, value + 'px');
  }

  title(g, lane) {
    g.fillStyle = this.colours.text;
    g.font = '600 ' + this.colours.font;
    const name = visible(lane.worker).slice(0, 60);
    g.fillText(name, 4, lane.top + LANE / 2);
    const wide = g.measureText(name).width;
    g.font = this.colours.font;
    g.fillStyle = this.colours.muted;
    g.fillText(
      plural(lane.bars.length, 'attempt') +
        (lane.running ? `, ${count(lane.running)} running` : '') +
        (lane.over ? `; ${count(lane.over)} overlap in the last row` : ''),
      12 + wide,
      lane.top + LANE / 2,
    );
  }

  // paint draws one bar: its colour, over it its mark.
  paint(g, b, left, top, wide, tall) {
    const mark = b.to === null && b.state !== 'waiting_approval' ? 'open' : marks[b.state] || null;
    g.fillStyle = this.colours.tones[toneOf(b.state)];
    const radius = Math.min(2.5, wide / 2);
    g.beginPath();
    g.roundRect(left, top, wide, tall, mark === 'open' ? [radius, 0, 0, radius] : radius);
    g.fill();
    if (mark && mark !== 'open' && wide >= 3) {
      g.fillStyle = this.patterns[mark];
      g.globalAlpha = 0.75;
      g.fill();
      g.globalAlpha = 1;
    }
    if (mark === 'open' && wide > 7) {
      // an arrow's head: it goes on
      g.fillStyle = this.colours.panel;
      g.beginPath();
      g.moveTo(left + wide - 6, top);
      g.lineTo(left + wide + 0.5, top);
      g.lineTo(left + wide + 0.5, top + tall);
      g.lineTo(left + wide - 6, top + tall);
      g.lineTo(left + wide, top + tall / 2);
      g.closePath();
      g.fill();
    }
  }

  tick() {
    const pixel = this.length / (this.width || 1);
    if (this.until === null && Date.now() - (this.drawnAt || 0) >= Math.max(1000, pixel)) this.draw();
    if (this.chosen && this.chosen.to === null) this.tell();
  }

  // ---- Pointing ----

  hit(event) {
    const box = this.canvas.getBoundingClientRect();
    const px = event.clientX - box.left,
      py = event.clientY - box.top;
    const {begin, end, width} = this,
      x = (t) => ((t - begin) / (end - begin)) * width,
      now = Date.now();
    const lane = this.lanes?.find((l) => py >= l.top && py < l.top + LANE + l.rows * ROW + PAD);
    return (
      lane?.bars.find((b) => py >= b.y && py < b.y + ROW && px >= x(b.from) - 2 && px <= Math.max(x(b.to ?? now), x(b.from) + LEAST) + 2) ||
      null
    );
  }

  hover(event) {
    const b = this.hit(event);
    this.stage.classList.toggle('is-over', Boolean(b));
    if (b !== this.chosen || (b && this.tip.hidden)) this.choose(b, true);
    if (!b) return;
    const box = this.stage.getBoundingClientRect();
    const left = Math.min(event.clientX - box.left + 14, box.width - this.tip.offsetWidth - 4);
    this.tip.style.setProperty('left', Math.max(0, left) + 'px');
    this.tip.style.setProperty('top', event.clientY - box.top + 18 + 'px');
  }

  choose(b, pointed = false) {
    this.chosen = b;
    this.tip.hidden = !b || !pointed;
    if (b && pointed)
      replace(this.tip, h('strong', {class: 'wrap'}, visible(b.name)), ' ', badge(b.state), h('div', {class: 'small'}, about(b)));
    this.tell(pointed);
    this.place();
  }

  tell(pointed = false) {
    const b = this.chosen;
    if (!b || pointed) replace(this.detail, h('span', {class: 'muted'}, 'Point at a bar, or go through them with the arrow keys.'));
    else replace(this.detail, jobLink(b.job, b.name), ' ', badge(b.state), ' ', about(b));
  }

  open(b) {
    this.ctx.navigate(`/jobs/${encodeURIComponent(b.job)}`);
  }

  keys(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target !== this.stage || !this.lanes?.length) return;
    const c = this.chosen;
    const at = c ? this.lanes.findIndex((l) => l.bars.includes(c)) : -1;
    const lane = this.lanes[at];
    const nearest = (l) => l?.bars.reduce((best, b) => (Math.abs(b.from - c.from) < Math.abs(best.from - c.from) ? b : best));
    const last = this.lanes[0].bars.at(-1);
    const to = {
      ArrowLeft: () => (c ? lane.bars[lane.bars.indexOf(c) - 1] || c : last),
      ArrowRight: () => (c ? lane.bars[lane.bars.indexOf(c) + 1] || c : last),
      ArrowUp: () => (c ? nearest(this.lanes[at - 1]) || c : last),
      ArrowDown: () => (c ? nearest(this.lanes[at + 1]) || c : last),
      Home: () => (lane || this.lanes[0]).bars[0],
      End: () => (lane || this.lanes[0]).bars.at(-1),
      Escape: () => null,
    }[event.key];
    if (event.key === 'Enter' && c) this.open(c);
    if (!to) return;
    event.preventDefault();
    this.choose(to());
  }

  // ---- The same as a table ----

  showTable() {
    if (!this.tableDetails.open) return;
    const list = [...this.bars.values()].sort((a, b) => b.from - a.from);
    const rows = list.slice(0, this.tablePages * ROWS);
    const cell = (label, child, props) => h('td', {'data-label': label, ...props}, child);
    replace(
      this.body,
      h(
        'div',
        {class: 'table-box cards'},
        h(
          'table',
          null,
          h('caption', {class: 'sr-only'}, 'Attempts, the latest first'),
          h(
            'thead',
            null,
            h(
              'tr',
              null,
              ['Job', 'Worker', 'Outcome', 'Began', 'Took', 'Attempt'].map((t) => h('th', {scope: 'col'}, t)),
            ),
          ),
          h(
            'tbody',
            null,
            rows.map((b) =>
              h(
                'tr',
                {'data-testid': 'timeline-row'},
                h('th', {scope: 'row', 'data-label': 'Job'}, jobLink(b.job, b.name, {'data-key': b.key})),
                cell('Worker', visible(b.worker)),
                cell('Outcome', h('span', null, badge(b.state), b.class ? h('span', {class: 'muted small'}, ' ' + words(b.class)) : null)),
                cell('Began', h('time', {datetime: new Date(b.from).toISOString()}, clockTime(new Date(b.from).toISOString()))),
                cell('Took', duration((b.to ?? Date.now()) - b.from), {class: 'num'}),
                cell('Attempt', b.attempt, {class: 'num'}),
              ),
            ),
          ),
        ),
      ),
      rows.length < list.length
        ? h(
            'button',
            {
              type: 'button',
              'data-testid': 'timeline-more',
              onclick: () => {
                this.tablePages += 1;
                this.showTable();
              },
            },
            `Show ${Math.min(ROWS, list.length - rows.length)} more of ${count(list.length)}`,
          )
        : null,
      list.length ? null : h('p', {class: 'empty'}, 'Nothing ran within this time.'),
    );
  }
}

const words = (name) => visible(String(name).toLowerCase().replaceAll('_', ' '));

// bar makes of an attempt (queue.Running) what is drawn; to is null while it runs.
function bar(a) {
  return {
    key: `${a.job}/${a.attempt}`,
    job: a.job,
    name: a.name || a.job,
    tenant: a.tenant || '',
    worker: a.worker || '?',
    attempt: a.attempt,
    state: a.state,
    class: a.class || '',
    from: Date.parse(a.began),
    to: a.ended ? Date.parse(a.ended) : null,
  };
}

function about(b) {
  const began = clockTime(new Date(b.from).toISOString());
  const ended = b.to === null ? `running for ${duration(Date.now() - b.from)}` : `took ${duration(b.to - b.from)}`;
  return [visible(b.worker), visible(b.tenant), `attempt ${b.attempt}`, `began ${began}`, ended, b.class && words(b.class)]
    .filter(Boolean)
    .join(' \u00b7 ');
}
