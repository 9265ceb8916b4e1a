// Charts of values over time, as SVG.
//
// A chart fills the width that it is given. Its lines differ by dash and marker as
// well as by colour; what a pointer or the arrow keys stand on is told in words
// below it, and all values stand in a table that can be unfolded.

import {clockTime, h, replace, s, visible} from './dom.js';
import {niceTicks, timeTicks} from './packing.js';

const DASHES = [null, '6 4', '2 3', '8 3 2 3'];
const MARKERS = [
  (x, y) => `M${x - 3} ${y}a3 3 0 1 0 6 0a3 3 0 1 0 -6 0z`,
  (x, y) => `M${x - 3} ${y - 3}h6v6h-6z`,
  (x, y) => `M${x} ${y - 4}l4 7h-8z`,
  (x, y) => `M${x} ${y - 4}l4 4l-4 4l-4 -4z`,
];
const MOST_MARKERS = 60; // points of a line that are marked; with more it is a line alone
const FRAME = {top: 10, right: 12, bottom: 24, left: 40};

/**
 * lineChart returns a figure that shows series of values over time.
 *
 * @param {object} options
 * @param {string} options.title what it shows, for its caption and for readers
 * @param {{name: string, points: {x: number, y: number, note?: string}[]}[]} options.series at most four;
 *   x in milliseconds since the epoch, rising; note is said with a point's value
 * @param {(y: number) => string} [options.format] of a value, in words
 * @param {number} [options.min] of the axis; default 0
 * @param {number} [options.max] of the axis; default: the greatest value
 * @param {number} [options.height] of the plot in pixels
 * @param {boolean} [options.area] fills what lies under the lines
 * @param {string} [options.testid]
 * @returns {{element: HTMLElement, update: (series: object[]) => void}}
 */
export function lineChart({title, series, format = String, min = 0, max, height = 180, area = false, testid = 'chart'}) {
  const plot = h('div', {class: 'chart-plot', tabindex: '0', role: 'group', 'aria-label': title + '. Arrow keys go from point to point.'});
  const readout = h('p', {class: 'chart-readout muted', 'aria-live': 'polite'});
  const legend = h('ul', {class: 'chart-legend'});
  const body = h('div');
  const data = h('details', {class: 'chart-data', ontoggle: () => fillTable()}, h('summary', null, 'As a table'), body);
  const element = h('figure', {class: 'linechart', 'data-testid': testid}, h('figcaption', null, title), legend, plot, readout, data);
  let current = series,
    width = 0,
    at = -1,
    cursor = null,
    scale = null,
    moments = [];

  function update(next) {
    current = next;
    moments = [...new Set(current.flatMap((line) => line.points.map((p) => p.x)))].sort((a, b) => a - b);
    at = -1;
    replace(
      legend,
      current.map((line, i) => h('li', null, sample(i), visible(line.name))),
    );
    draw();
    fillTable();
    tell();
  }

  function draw() {
    if (width < 40) return;
    const top = max ?? niceTicks(min, Math.max(min + 1e-9, ...current.flatMap((line) => line.points.map((p) => p.y))), 4).at(-1);
    const from = moments[0] ?? 0,
      to = moments.at(-1) ?? 1;
    const inner = width - FRAME.left - FRAME.right,
      tall = height - FRAME.top - FRAME.bottom;
    scale = {
      x: (x) => round(to > from ? FRAME.left + ((x - from) / (to - from)) * inner : FRAME.left + inner / 2),
      y: (y) => round(FRAME.top + tall - ((y - min) / (top - min || 1)) * tall),
    };
    cursor = s('path', {class: 'chart-cursor', d: '', 'aria-hidden': 'true'});
    const ticks = niceTicks(min, top, 4);
    const times = to > from ? timeTicks(from, to, Math.max(1, Math.floor(inner / 90))) : {at: [from], step: 0};
    replace(
      plot,
      s(
        'svg',
        {width, height, viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': title + ': ' + summary(current, format)},
        ticks.map((t) => [
          s('path', {class: 'chart-grid', d: `M${FRAME.left} ${scale.y(t)}H${width - FRAME.right}`}),
          s('text', {class: 'chart-label', x: FRAME.left - 6, y: scale.y(t) + 4, 'text-anchor': 'end'}, format(t)),
        ]),
        moments.length
          ? times.at.map((t) =>
              s('text', {class: 'chart-label', x: scale.x(t), y: height - 6, 'text-anchor': 'middle'}, timeLabel(t, times.step)),
            )
          : null,
        current.map((line, i) => drawn(line.points, i, scale, area, scale.y(min))),
        cursor,
      ),
    );
    point(at);
  }

  function drawn(points, i, {x, y}, filled, base) {
    if (!points.length) return null;
    const d = 'M' + points.map((p) => `${x(p.x)} ${y(p.y)}`).join('L');
    return s(
      'g',
      {class: `chart-line series-${(i % 4) + 1}`},
      filled && points.length > 1 ? s('path', {class: 'chart-area', d: `${d}V${base}H${x(points[0].x)}Z`}) : null,
      s('path', {class: 'chart-stroke', d, 'stroke-dasharray': DASHES[i % 4]}),
      points.length <= MOST_MARKERS
        ? s('path', {class: 'chart-marks', d: points.map((p) => MARKERS[i % 4](x(p.x), y(p.y))).join('')})
        : null,
    );
  }

  // point puts the cursor on a moment; -1 takes it away.
  function point(index) {
    at = index;
    if (!cursor) return;
    cursor.setAttribute('d', at < 0 || !scale ? '' : `M${scale.x(moments[at])} ${FRAME.top}V${height - FRAME.bottom}`);
    tell();
  }

  function tell() {
    if (at < 0) {
      readout.textContent = summary(current, format);
      return;
    }
    const values = current
      .map((line) => {
        const p = line.points.find((q) => q.x === moments[at]);
        return p ? `${visible(line.name)} ${format(p.y)}${p.note ? ' (' + visible(p.note) + ')' : ''}` : null;
      })
      .filter(Boolean);
    readout.textContent = clockTime(moments[at]) + ': ' + values.join(', ');
  }

  function fillTable() {
    if (!data.open) return;
    replace(
      body,
      h(
        'div',
        {class: 'table-box', tabindex: '0', role: 'region', 'aria-label': title},
        h(
          'table',
          null,
          h('caption', {class: 'sr-only'}, title),
          h(
            'thead',
            null,
            h(
              'tr',
              null,
              h('th', {scope: 'col'}, 'Time'),
              current.map((line) => h('th', {scope: 'col', class: 'num'}, visible(line.name))),
            ),
          ),
          h(
            'tbody',
            null,
            moments.map((x) =>
              h(
                'tr',
                null,
                h('th', {scope: 'row'}, clockTime(x)),
                current.map((line) => {
                  const p = line.points.find((q) => q.x === x);
                  return h('td', {class: 'num'}, p ? format(p.y) : '\u2013');
                }),
              ),
            ),
          ),
        ),
      ),
    );
  }

  plot.addEventListener('pointermove', (event) => {
    if (!scale || !moments.length) return;
    const x = event.clientX - plot.getBoundingClientRect().left;
    let nearest = 0;
    moments.forEach((m, i) => {
      if (Math.abs(scale.x(m) - x) < Math.abs(scale.x(moments[nearest]) - x)) nearest = i;
    });
    if (nearest !== at) point(nearest);
  });
  plot.addEventListener('pointerleave', () => point(-1));
  plot.addEventListener('keydown', (event) => {
    const to = {ArrowLeft: at < 0 ? moments.length - 1 : at - 1, ArrowRight: at + 1, Home: 0, End: moments.length - 1, Escape: -1}[
      event.key
    ];
    if (to === undefined || !moments.length) return;
    event.preventDefault();
    point(Math.max(event.key === 'Escape' ? -1 : 0, Math.min(moments.length - 1, to)));
  });
  new ResizeObserver(([entry]) => {
    const next = Math.floor(entry.contentRect.width);
    if (next === width) return;
    width = next;
    draw();
  }).observe(plot);
  update(series);
  return {element, update};
}

const round = (n) => Math.round(n * 10) / 10;

// sample is a line's look in the legend.
function sample(i) {
  return s(
    'svg',
    {class: `chart-sample series-${(i % 4) + 1}`, width: 28, height: 10, viewBox: '0 0 28 10', 'aria-hidden': 'true'},
    s('path', {class: 'chart-stroke', d: 'M1 5H27', 'stroke-dasharray': DASHES[i % 4]}),
    s('path', {class: 'chart-marks', d: MARKERS[i % 4](14, 5)}),
  );
}

function summary(series, format) {
  const lines = series.filter((line) => line.points.length);
  if (!lines.length) return 'nothing yet.';
  return (
    lines
      .map((line) => {
        const values = line.points.map((p) => p.y);
        return `${visible(line.name)}: latest ${format(values.at(-1))}, least ${format(Math.min(...values))}, most ${format(Math.max(...values))}`;
      })
      .join('; ') + '.'
  );
}

const hours = new Intl.DateTimeFormat(undefined, {hour: '2-digit', minute: '2-digit', hourCycle: 'h23'});
const seconds = new Intl.DateTimeFormat(undefined, {hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23'});
const days = new Intl.DateTimeFormat(undefined, {day: 'numeric', month: 'short'});

// timeLabel writes a tick of an axis: the time of day, with seconds if ticks are less
// than a minute apart, or the day at midnight.
export function timeLabel(t, step) {
  const time = new Date(t);
  const midnight = time.getHours() === 0 && time.getMinutes() === 0 && time.getSeconds() === 0;
  return step >= 86400000 || (midnight && step >= 600000) ? days.format(time) : (step < 60000 ? seconds : hours).format(time);
}
