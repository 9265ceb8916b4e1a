// How times, amounts and the states of jobs are said.

import {h, setText, firstLine} from './dom.js';

// zero reports whether a time of the API is none: absent, or Go's zero time.
export const zero = (time) => !time || String(time).startsWith('0001-01-01');

const clock = new Intl.DateTimeFormat(undefined, {hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23'});
const day = new Intl.DateTimeFormat(undefined, {day: 'numeric', month: 'short'});
const whole = new Intl.DateTimeFormat(undefined, {dateStyle: 'medium', timeStyle: 'long'});

// clockTime returns the time of day, and the day if it is not today.
export function clockTime(time) {
  if (zero(time)) return '';
  const t = new Date(time);
  return t.toDateString() === new Date().toDateString() ? clock.format(t) : day.format(t) + ', ' + clock.format(t).slice(0, 5);
}

// ago returns how long ago a time is, or in how long: "now", "5 m ago", "in 2 h".
export function ago(time, now = Date.now()) {
  if (zero(time)) return '';
  const ms = now - new Date(time).getTime();
  const words = coarse(Math.abs(ms));
  return Math.abs(ms) < 5000 ? 'now' : ms < 0 ? 'in ' + words : words + ' ago';
}

function coarse(ms) {
  const sec = ms / 1000;
  if (sec < 60) return Math.round(sec) + ' s';
  if (sec < 3600) return Math.floor(sec / 60) + ' m';
  if (sec < 86400) return Math.floor(sec / 3600) + ' h';
  return Math.floor(sec / 86400) + ' d';
}

// timeOf returns a <time> element that says how long ago it was, kept up to date
// while it is in the document; relative false: the time of day.
export function timeOf(time, {relative = true} = {}) {
  if (zero(time)) return h('span', {class: 'muted'}, '\u2013');
  const el = h('time', {datetime: time, title: whole.format(new Date(time))}, relative ? ago(time) : clockTime(time));
  if (relative) el.dataset.ago = '';
  return el;
}

// tick brings all relative times and running durations of the document up to
// date. The shell calls it.
export function tick() {
  const now = Date.now();
  for (const el of document.querySelectorAll('time[data-ago]')) setText(el, ago(el.dateTime, now));
  for (const el of document.querySelectorAll('[data-since]')) setText(el, duration(now - new Date(el.dataset.since).getTime()));
}

// duration returns milliseconds in words of at most two units: "850 ms", "4.2 s",
// "3 m 05 s", "2 h 10 m".
export function duration(ms) {
  if (ms === null || ms === undefined || Number.isNaN(ms)) return '';
  ms = Math.max(0, ms);
  const pad = (n) => String(n).padStart(2, '0');
  if (ms < 1000) return Math.round(ms) + ' ms';
  if (ms < 10000) return (ms / 1000).toFixed(1) + ' s';
  const sec = Math.floor(ms / 1000);
  if (sec < 60) return sec + ' s';
  if (sec < 3600) return Math.floor(sec / 60) + ' m ' + pad(sec % 60) + ' s';
  if (sec < 86400) return Math.floor(sec / 3600) + ' h ' + pad(Math.floor(sec / 60) % 60) + ' m';
  return Math.floor(sec / 86400) + ' d ' + (Math.floor(sec / 3600) % 24) + ' h';
}

// since returns an element that shows how long it has been since a time, running on
// until the given end.
export function since(begin, end) {
  if (zero(begin)) return h('span', {class: 'muted'}, '\u2013');
  if (!zero(end)) return h('span', {class: 'num'}, duration(new Date(end) - new Date(begin)));
  return h('span', {class: 'num', 'data-since': begin}, duration(Date.now() - new Date(begin).getTime()));
}

// millis returns the milliseconds of a duration as Go writes it ("1h30m0s",
// "250ms"); 0 of anything else.
export function millis(text) {
  const unit = {h: 3600000, m: 60000, s: 1000, ms: 1, us: 1e-3, '\u00b5s': 1e-3, '\u03bcs': 1e-3, ns: 1e-6};
  let sum = 0;
  for (const [, n, u] of String(text ?? '').matchAll(/([\d.]+)(ms|us|\u00b5s|\u03bcs|ns|h|m|s)/g)) sum += Number(n) * unit[u];
  return sum;
}

// money returns US dollars; known false says that a part of it had no price.
export function money(usd, known = true) {
  const n = usd || 0;
  const text = '$' + (n !== 0 && n < 0.01 ? n.toFixed(4) : n < 1000 ? n.toFixed(2) : Math.round(n).toLocaleString('en-US'));
  return known ? text : '\u2265 ' + text;
}

// cost returns the cost of a usage of the API.
export function cost(usage) {
  const u = usage || {};
  return money(u.cost_usd, Boolean(u.cost_known) || !tokensOf(u));
}

// tokensOf returns input plus output tokens of a usage of the API.
export const tokensOf = (usage) => (usage?.input_tokens || 0) + (usage?.output_tokens || 0);

// count returns a number with its thousands apart, tokens a short form of it: "12.4k".
export const count = (n) => (n || 0).toLocaleString('en-US');
export function tokens(n) {
  n = n || 0;
  if (n < 1000) return String(n);
  if (n < 1e6) return (n / 1e3).toFixed(n < 1e4 ? 1 : 0) + 'k';
  return (n / 1e6).toFixed(n < 1e7 ? 2 : 1) + 'M';
}

// bytes returns a size: "1.2 MiB".
export function bytes(n) {
  n = n || 0;
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let i = 0;
  while (n >= 1024 && i < units.length - 1) {
    n /= 1024;
    i++;
  }
  return (i === 0 ? n : n.toFixed(1)) + ' ' + units[i];
}

// percent returns a part of 1: "40%".
export const percent = (part) => Math.round((part || 0) * 100) + '%';

// plural returns "1 job", "2 jobs".
export const plural = (n, one, many = one + 's') => count(n) + ' ' + (n === 1 ? one : many);

// stateOf returns the state of a job's latest run, one of those of states.js.
export const stateOf = (entry) => entry.status?.state || 'pending';

// noteOf says in one line why a job is where it is; "" where that is plain.
export function noteOf(entry) {
  const {waiting, note} = entry.status || {};
  return waiting ? waitingFor(waiting) : firstLine(note);
}

// waits are the reasons for which jobs wait, each with what follows "waiting for".
const waits = {
  turn: 'its turn',
  time: 'its start time',
  slot: 'a slot',
  folder: 'its folder',
  dependency: 'jobs that it needs',
  parts: 'its parts',
  pipeline: 'its pipeline',
  team: 'its team',
  words: 'somebody to go on',
  person: 'a person to hand it back',
  key: 'a job of the same key',
  approval: 'approval',
  retry: 'a retry',
  rate: 'a rate limit',
  cost_window: 'a cost window',
  budget: 'a budget',
  usage_limit: 'a usage limit',
  circuit: 'a circuit breaker',
  load: 'less load',
  isolation: 'the end of an isolation',
  pause: 'the end of a pause',
  core: 'a core',
  node: 'a node',
  permit: 'another permit',
  command: 'the command that submitted it',
  program: 'a program',
  scheduler: 'a scheduler',
};

// waitingFor says in one line what a job waits for: {reason, text} of its status.
export function waitingFor({reason, text}) {
  return 'waiting for ' + (waits[reason] || String(reason ?? '').replaceAll('_', ' ')) + (text ? ': ' + firstLine(text) : '');
}
