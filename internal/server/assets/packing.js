// Packing of spans of time into rows, as pure functions over plain values.

/**
 * pack gives each span the first row in which nothing else is at its time: as few
 * rows as possible, since the spans are taken in the order in which they begin.
 * Spans that no row has room for share one more row, in which they overlap.
 *
 * @template {{from: number, to: number}} S
 * @param {S[]} spans in milliseconds; to > from, or equal for a moment
 * @param {number} [gap] that lies at least between two of a row, in milliseconds
 * @param {number} [most] rows in which nothing overlaps; without it as many as it takes
 * @returns {{rows: number, row: Map<S, number>, over: number}} over spans overlap, in the last row
 */
export function pack(spans, gap = 0, most = Infinity) {
  const sorted = [...spans].sort((a, b) => a.from - b.from || a.to - b.to);
  const row = new Map();
  const ends = []; // heap of {to, row}, the earliest end first
  const free = []; // heap of rows, the least first
  let rows = 0,
    over = 0;
  for (const s of sorted) {
    while (ends.length > 0 && ends[0].key + gap <= s.from) push(free, {key: pop(ends).row});
    if (free.length === 0 && rows === most) {
      row.set(s, most);
      over++;
      continue;
    }
    const r = free.length > 0 ? pop(free).key : rows++;
    row.set(s, r);
    push(ends, {key: s.to, row: r});
  }
  return {rows: over > 0 ? rows + 1 : rows, row, over};
}

function push(heap, item) {
  let i = heap.push(item) - 1;
  while (i > 0) {
    const up = (i - 1) >> 1;
    if (heap[up].key <= item.key) break;
    heap[i] = heap[up];
    i = up;
  }
  heap[i] = item;
}

function pop(heap) {
  const top = heap[0];
  const last = heap.pop();
  if (heap.length === 0) return top;
  let i = 0;
  for (;;) {
    let down = 2 * i + 1;
    if (down >= heap.length) break;
    if (down + 1 < heap.length && heap[down + 1].key < heap[down].key) down += 1;
    if (heap[down].key >= last.key) break;
    heap[i] = heap[down];
    i = down;
  }
  heap[i] = last;
  return top;
}

/**
 * fitSpan returns the shortest length of time before now within which at least half
 * of the moments lie; the longest if none does, fallback if there are no moments.
 *
 * @param {number[]} moments in milliseconds since the epoch
 * @param {number} now
 * @param {number[]} lengths in milliseconds, the shortest first
 * @param {number} fallback one of lengths
 * @returns {number} one of lengths
 */
export function fitSpan(moments, now, lengths, fallback) {
  if (moments.length === 0) return fallback;
  const within = (length) => moments.filter((m) => m >= now - length).length;
  return lengths.find((length) => within(length) * 2 >= moments.length) ?? lengths.at(-1);
}

const STEPS = [
  1,
  2,
  5,
  10,
  15,
  30, // seconds
  60,
  120,
  300,
  600,
  900,
  1800, // minutes
  3600,
  7200,
  10800,
  21600,
  43200,
  86400, // hours
].map((s) => s * 1000);

/**
 * timeTicks returns round moments of local time within a span, at most so many.
 *
 * @param {number} from milliseconds since the epoch
 * @param {number} to
 * @param {number} most at least 1
 * @param {number} [zone] minutes that local time is behind UTC, as Date.getTimezoneOffset has it
 * @returns {{step: number, at: number[]}}
 */
export function timeTicks(from, to, most, zone = new Date(from).getTimezoneOffset()) {
  let step = STEPS.find((s) => (to - from) / s <= most) || 86400000;
  while ((to - from) / step > most) step *= 2;
  const shift = zone * 60000;
  const at = [];
  for (let t = Math.ceil((from - shift) / step) * step + shift; t <= to; t += step) at.push(t);
  if (at.length > most) at.length = most;
  return {step, at};
}

/**
 * niceTicks returns round numbers from min to max or a little beyond, about so many.
 *
 * @param {number} min
 * @param {number} max
 * @param {number} count
 * @returns {number[]}
 */
export function niceTicks(min, max, count) {
  if (!(max > min)) return [min];
  const raw = (max - min) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= raw * 0.999);
  const ticks = [];
  for (let i = Math.floor(min / step + 1e-9); ; i++) {
    const t = Number((i * step).toPrecision(12));
    ticks.push(t);
    if (t >= max - step * 1e-9) return ticks;
  }
}
