// The shell of the dashboard: navigation, routes, the one stream that all pages
// share, and what it does when the scheduler is away.
//
// # A page
//
// Each module under pages/ exports
//
//   export const page = {         // or: export const pages = [{…}, {…}]
//     title: 'Jobs',             // or (ctx) => string
//     path: '/jobs/:job',        // or a list of them; parameters match one segment
//     nav: 'jobs',               // its entry of the navigation (NAME of nav-NAME), if that is not the path's first part
//     async mount(root, ctx) {   // fills root, an empty element below the <main>
//       …
//       return () => {…};        // optional: called when the page is left
//     },
//   };
//
// An address is #PATH?QUERY, e.g. #/jobs/01a1…?tab=log. A change of path mounts the
// page anew; a change of the query alone calls ctx.onquery, if the page set it, else
// mounts it anew. An error that mount throws is shown in its place.
//
// ctx is
//
//   params    {job: '01a1…'}, decoded          query     {tab: 'log'}
//   api, path as in api.js                      me        {name, role, door}
//   can(role) whether our role reaches it: 'read', 'submit', 'operate'
//   stream    {on(kind, f), during(f), state}: events of GET /v1/stream (job, core, circuit,
//             escalation, signal) as scheduler updates, and "gap": something was
//             missed (also after the scheduler came back), fetch again. What is
//             registered here ends with the page. during(f) calls f, which fetches and
//             shows; what comes meanwhile is passed on afterwards. mount is called so:
//             it may fetch first and listen then.
//   every(ms, f)      calls f again and again while the page is open and seen, and
//                     at once when it is seen again
//   soon(ms, f)       returns a function that calls f at most once in ms, the last
//                     call not lost: ctx.stream.on('job', ctx.soon(1000, load))
//   signal            aborted when the page is left; give it to api calls
//   navigate(address) goes there: '/jobs'       setQuery(object) replaces the query
//   setTitle(text)    once it is known
//
// dom.js has the parts: h, s, replace, refresh, link, table, panel, facts, badge, bar, field,
// ask (a dialog), toast, failed (an error as a toast), timeOf, since, duration, money,
// tokens, stateOf, noteOf, jobLink, visible (for text from outside). actions.js has
// what may be done to jobs: cancel, retry, approve, reject, checkpoint, pause, resume,
// and to nodes: cordon, uncordon, drain.
//
// # Hooks for tests
//
// <html data-connection="live|reconnecting|paused|closed" data-page="overview|jobs|…"
// data-ready="true|false"> (ready: the page has mounted). data-testid:
//
//   shell      nav, nav-NAME, connection, notify, keys, theme, toast, page, page-error, unauthorized, upgraded,
//              role, sign-out, approvals-count, letters-count
//   dialog     dialog-pause|cancel-job|approve|reject|checkpoint|cordon|drain|keys; in each dialog-confirm, dialog-cancel (closes it),
//              dialog-problem, field-NAME
//   overview   pause, needs, needs-none, approval-item, approve, reject, last-line, running, running-now, queued, approval, dead-letters, ended, waiting, throughput, cost, budgets, tenants, cores, circuits, isolations, resume, alerts
//   jobs       search, filter-status-all|STATE, filter-tenant, filter-worker, filter-letters, order, jobs,
//              job-row (data-key is the id), new-jobs, total
//   job        job-state, job-clock, why, ids, action-cancel|retry|approve|reject|checkpoint, attempts, steps, log, log-event
//              (data-kind), log-follow, log-older, log-filter, diff, diff-file, artifacts, usage, evaluations, instructions, answer;
//              message (data-message is its id); those of talk.js, questions.js and comments.js
//   submit     tab-one, tab-file, submit-form, submit, form-problem, problem-NAME

import {api, path, Held, Stream, setOnUnauthorized} from './api.js';
import {Attention} from './attention.js';
import {h, icon, replace, tick, failed, count, showKeys, visible} from './dom.js';
import * as overview from './pages/overview.js';
import * as jobs from './pages/jobs.js';
import * as job from './pages/job.js';
import * as submit from './pages/submit.js';
import * as workflows from './pages/workflows.js';
import * as pipelines from './pages/pipelines.js';
import * as approvals from './pages/approvals.js';
import * as letters from './pages/letters.js';
import * as agents from './pages/agents.js';
import * as timeline from './pages/timeline.js';
import * as nodes from './pages/nodes.js';

const pages = [overview, jobs, job, submit, workflows, pipelines, approvals, letters, agents, timeline, nodes].flatMap((m) => m.pages || [m.page]);

const navigation = [
  ['overview', 'Overview', '/'],
  ['jobs', 'Jobs', '/jobs'],
  ['approvals', 'Approvals', '/approvals'],
  ['letters', 'Dead letters', '/dead-letters'],
  ['workflows', 'Workflows', '/workflows'],
  ['pipelines', 'Pipelines', '/pipelines'],
  ['timeline', 'Timeline', '/timeline'],
  ['agents', 'Agents', '/agents'],
  ['nodes', 'Nodes', '/nodes'],
  ['submit', 'Submit', '/submit'],
];

const roles = ['read', 'submit', 'operate'];
const root = document.documentElement;

const updates = ['job', 'core', 'circuit', 'escalation', 'signal', 'gap']; // what a page may listen to

const CONNECT = 2000; // ms that the first page waits for the stream

const app = {me: null, stream: null, current: null, version: '', attention: new Attention()};

// ---- Routes ----

function compile(page) {
  return [page.path].flat().map((p) => ({
    page,
    parts: p.split('/').filter(Boolean),
  }));
}
const routes = pages.flatMap(compile);

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

// resolve returns the page that an address names and its parameters.
function resolve(address) {
  const [place, search = ''] = address.split(/\?(.*)/s);
  const parts = place.split('/').filter(Boolean).map(decode);
  for (const route of routes) {
    if (route.parts.length !== parts.length) continue;
    const params = {};
    const fits = route.parts.every((p, i) => (p.startsWith(':') ? ((params[p.slice(1)] = parts[i]), true) : p === parts[i]));
    if (fits) return {page: route.page, params, place, query: Object.fromEntries(new URLSearchParams(search))};
  }
  return null;
}

const addressNow = () => location.hash.replace(/^#/, '') || '/';

function navigate(address) {
  location.hash = '#' + address.replace(/^#/, '');
}

// ---- A page's life ----

function leave() {
  const page = app.current;
  app.current = null;
  if (!page) return;
  page.abort.abort();
  for (const off of page.ends) off();
  try {
    page.unmount?.();
  } catch (error) {
    console.error(error);
  }
}

async function show({moved = true} = {}) {
  const found = resolve(addressNow());
  const same = found && app.current && app.current.place === found.place;
  if (same && app.current.ctx.onquery) {
    if (JSON.stringify(app.current.ctx.query) === JSON.stringify(found.query)) return;
    app.current.ctx.query = found.query;
    app.current.ctx.onquery(found.query);
    return;
  }
  leave();
  const main = document.getElementById('page');
  root.dataset.ready = 'false';
  const body = h('div', {class: 'page', 'data-testid': 'page'});
  replace(main, body);
  window.scrollTo(0, 0);
  if (!found) {
    mark('', 'Not found');
    replace(body, h('h1', null, 'There is no such page'), h('p', null, h('a', {href: '#/'}, 'Go to the overview')));
    root.dataset.ready = 'true';
    return;
  }
  const life = {place: found.place, abort: new AbortController(), ends: [], unmount: null, ctx: null};
  app.current = life;
  life.updates = new Held(app.stream, updates);
  life.ends.push(life.updates.close);
  life.ctx = context(found, life);
  const title = typeof found.page.title === 'function' ? found.page.title(life.ctx) : found.page.title;
  mark(found.page.nav || found.place.split('/')[1] || 'overview', title);
  try {
    const unmount = await life.updates.during(() => found.page.mount(body, life.ctx));
    if (app.current === life) life.unmount = unmount;
    else unmount?.();
  } catch (error) {
    if (app.current !== life || error?.name === 'AbortError') return;
    if (!(error?.name === 'Problem')) console.error(error);
    replace(body, problemPage(error));
  }
  if (app.current !== life) return;
  root.dataset.ready = 'true';
  if (moved) body.querySelector('h1')?.focus({preventScroll: true});
}

function problemPage(error) {
  return h(
    'div',
    {class: 'problem-page', role: 'alert', 'data-testid': 'page-error'},
    h('h1', {tabindex: '-1'}, visible(error?.title || 'This page could not be shown')),
    h('p', null, visible(error?.detail || error?.message || String(error))),
    h('button', {type: 'button', onclick: () => show()}, 'Try again'),
  );
}

function context(found, life) {
  const {signal} = life.abort;
  return {
    params: found.params,
    query: found.query,
    api,
    path,
    me: app.me,
    signal,
    navigate,
    can: (role) => roles.indexOf(app.me?.role) >= roles.indexOf(role),
    stream: {
      on: (kind, f) => life.updates.on(kind, f),
      during: (f) => life.updates.during(f),
      get state() {
        return app.stream.state;
      },
    },
    every(ms, f) {
      const again = () => {
        if (!document.hidden) f();
      };
      const timer = setInterval(again, ms);
      document.addEventListener('visibilitychange', again, {signal});
      life.ends.push(() => clearInterval(timer));
    },
    soon(ms, f) {
      let timer = null,
        last = -Infinity;
      life.ends.push(() => clearTimeout(timer));
      return () => {
        if (timer !== null || signal.aborted) return;
        timer = setTimeout(
          () => {
            timer = null;
            last = performance.now();
            f();
          },
          Math.max(0, Math.min(ms, last + ms - performance.now())),
        );
      };
    },
    setQuery(values) {
      const q = new URLSearchParams(
        Object.entries(values).filter(([, v]) => v !== '' && v !== null && v !== undefined && v !== false),
      ).toString();
      this.query = Object.fromEntries(new URLSearchParams(q));
      history.replaceState(null, '', '#' + found.place + (q ? '?' + q : ''));
    },
    setTitle: (text) => app.attention.title(text),
    onquery: null,
  };
}

function mark(name, title) {
  root.dataset.page = name;
  app.attention.title(title || name);
  for (const a of document.querySelectorAll('#nav a')) {
    if (a.dataset.nav === name) a.setAttribute('aria-current', 'page');
    else a.removeAttribute('aria-current');
  }
  closeMenu();
}

// ---- The shell ----

function shell() {
  replace(
    document.getElementById('nav'),
    h(
      'ul',
      null,
      navigation.map(([name, title, place]) => {
        if (name === 'submit' && !can('submit')) return null;
        return h(
          'li',
          null,
          h(
            'a',
            {href: '#' + place, 'data-nav': name, 'data-testid': 'nav-' + name},
            icon(name),
            h('span', null, title),
            name === 'approvals' || name === 'letters'
              ? h('span', {class: 'nav-count', id: name + '-count', 'data-testid': name + '-count', hidden: true})
              : null,
          ),
        );
      }),
    ),
  );
  replace(
    document.getElementById('who'),
    h(
      'span',
      {'data-testid': 'role', title: 'Signed in by ' + (app.me.door || 'the daemon')},
      h('bdi', null, visible(app.me.name || 'you')),
      h('span', {class: 'muted'}, ' may ' + app.me.role),
    ),
    app.me.door === 'browser'
      ? h(
          'button',
          {type: 'button', class: 'ghost sign-out', 'data-testid': 'sign-out', onclick: signOut},
          icon('exit'),
          h('span', null, 'Sign out'),
        )
      : null,
  );
  document.getElementById('keys').before(app.attention.button());
  document.getElementById('keys').addEventListener('click', showKeys);
  document.getElementById('theme').addEventListener('click', cycleTheme);
  document.getElementById('menu').addEventListener('click', () => setMenu(document.body.dataset.menu !== 'open'));
  document.getElementById('skip').addEventListener('click', (event) => {
    event.preventDefault();
    (document.querySelector('#page h1') || document.getElementById('page')).focus();
  });
  showTheme();
}

const RECOUNT = 2500; // ms; the scheduler counts anew after 2 s

const can = (role) => roles.indexOf(app.me?.role) >= roles.indexOf(role);
const closeMenu = () => setMenu(false);

function setMenu(open) {
  document.body.dataset.menu = open ? 'open' : '';
  document.getElementById('menu').setAttribute('aria-expanded', String(open));
}

const themes = ['system', 'light', 'dark'];

function cycleTheme() {
  const next = themes[(themes.indexOf(root.dataset.theme || 'system') + 1) % themes.length];
  if (next === 'system') delete root.dataset.theme;
  else root.dataset.theme = next;
  try {
    if (next === 'system') localStorage.removeItem('theme');
    else localStorage.setItem('theme', next);
  } catch {
    /* it is not kept where the browser keeps nothing */
  }
  showTheme();
}

function showTheme() {
  const name = root.dataset.theme || 'system';
  const button = document.getElementById('theme');
  button.setAttribute('aria-label', 'Colours: ' + name + '. Change');
  button.title = 'Colours: ' + name;
  replace(button, icon('theme'), h('span', null, name));
}

const connections = {
  connecting: ['Connecting', 'ask'],
  live: ['Live', 'good'],
  reconnecting: ['Reconnecting\u2026', 'bad'],
  paused: ['Paused', 'idle'],
  closed: ['Disconnected', 'bad'],
};

function showConnection(state) {
  root.dataset.connection = state === 'connecting' ? 'reconnecting' : state;
  const [label, tone] = connections[state];
  replace(
    document.getElementById('connection'),
    h('span', {class: ['dot', 'tone-' + tone], 'aria-hidden': 'true'}),
    h('span', null, label),
  );
  document.getElementById('away').hidden = state !== 'reconnecting';
}

// counts shows in the navigation and the title what waits for a person, and offers to load the
// page anew once the daemon is of another version than the page.
async function counts() {
  let o, questions;
  try {
    o = await api.get('/v1/overview');
    questions = (await api.get('/v1/questions')).questions || [];
  } catch {
    return; // the connection's state tells of it
  }
  app.attention.show(questions, o.census?.approval || 0);
  for (const [id, n, what] of [
    ['approvals-count', app.attention.count, 'waiting'],
    ['letters-count', o.census?.dead_letters, 'dead letters'],
  ]) {
    const el = document.getElementById(id);
    if (!el) continue;
    el.hidden = !n;
    replace(el, count(n), h('span', {class: 'sr-only'}, ' ' + what));
  }
  if (app.version && o.version !== app.version) document.getElementById('upgraded').hidden = false;
  app.version ||= o.version;
}

function unauthorized() {
  leave();
  app.stream?.close();
  root.dataset.page = 'unauthorized';
  root.dataset.ready = 'true';
  document.body.dataset.shell = 'off';
  replace(
    document.getElementById('page'),
    h(
      'div',
      {class: 'page problem-page', 'data-testid': 'unauthorized'},
      h('h1', {tabindex: '-1'}, 'You are not signed in'),
      h(
        'p',
        null,
        'This browser has no session with the scheduler, or it has ended. On the machine where the scheduler runs, ask for a new link:',
      ),
      h('pre', {class: 'command', tabindex: '0'}, 'scheduler ui'),
      h('p', null, 'It prints a link, opens it, and it works once. Over an SSH connection, copy the link into this browser.'),
      h('button', {type: 'button', class: 'primary', onclick: () => location.reload()}, 'Try again'),
    ),
  );
  document.querySelector('#page h1').focus();
}

async function signOut() {
  try {
    await api.post('/logout');
    sessionStorage.clear(); // what was written and not sent
  } catch (error) {
    failed(error, 'You are still signed in');
    return;
  }
  unauthorized();
}

async function start() {
  setOnUnauthorized(unauthorized);
  for (let wait = 500; !app.me; wait = Math.min(wait * 2, 10000)) {
    try {
      app.me = await api.get('/v1/me');
    } catch (error) {
      if (error.status === 401) return;
      root.dataset.connection = 'reconnecting';
      replace(document.getElementById('page'), h('div', {class: 'page'}, problemPage(error)));
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  }
  shell();
  app.stream = new Stream('/v1/stream', {awake: () => app.attention.on});
  showConnection(app.stream.state);
  let lost = false;
  const live = new Promise((resolve) => {
    app.stream.on('state', (state) => {
      showConnection(state);
      if (state === 'live' && lost && !app.stream.lastId) app.stream.emit('gap', null); // nothing was heard yet: nothing to resume at
      lost = state !== 'live';
      if (!lost) resolve();
    });
  });
  setInterval(() => {
    if (!document.hidden) tick();
  }, 1000);
  let counting = null,
    told = 0;
  const countNow = () => {
    counting = null;
    if (!document.hidden || app.attention.on) counts();
    if (performance.now() - told < RECOUNT) counting = setTimeout(countNow, RECOUNT); // what was counted may be older than that
  };
  const recount = () => {
    told = performance.now();
    counting ??= setTimeout(countNow, RECOUNT);
  };
  for (const kind of ['job', 'signal', 'escalation', 'gap']) app.stream.on(kind, recount);
  setInterval(recount, 30000);
  counts();
  window.addEventListener('hashchange', () => show());
  document.addEventListener('keydown', keys);
  document.getElementById('reload').addEventListener('click', () => location.reload());
  window.addEventListener('unhandledrejection', (event) => {
    if (event.reason?.name === 'Problem') failed(event.reason);
  });
  await Promise.race([live, new Promise((resolve) => setTimeout(resolve, CONNECT))]); // or what changes before it is live would be missed
  lost = app.stream.state !== 'live';
  await show({moved: false});
}

// keys: "/" goes to the search of jobs, "?" shows the keys, Escape closes the menu.
function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === 'Escape') closeMenu();
  if (!['/', '?'].includes(event.key) || event.target.closest('input, textarea, select, [contenteditable]')) return;
  event.preventDefault();
  if (event.key === '?') {
    showKeys();
    return;
  }
  const search = document.querySelector('[data-testid="search"]');
  if (search) search.focus();
  else navigate('/jobs');
}

start();
