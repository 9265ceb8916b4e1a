// Plays scripts in one headless Chromium. Standard input has a line of JSON for each:
// {play: 'approve', world, args}; standard output one when it is over, {done, error,
// steps, console, figures}, and where it asks for something, {ask: 'kill'}. The end of
// standard input ends it.
//
// A script is an exported function of one of the modules below. It gets
//
//   page, context   of Playwright; a context of its own, with Playwright's auto-waiting
//   args            what the test says, and world: {url, scheduler, state, config, repo, dir, env}
//   step(name, f)   does something that has a name in failures
//   login(role)     opens the dashboard by a one-time link; go(address) opens a page and waits until it is ready
//   at(testid)      a locator; text(locator, words) waits until it has them; none(locator) until it is not seen
//   cli(…args)      runs a scheduler command and returns its standard output
//   submit(jobs, more)  submits a job file, returns the jobs by their names; puppet(name, acts, more) is one job
//   chat(name, script, more)  is a job of the worker that converses (examples/workers/chat)
//   file(name)      a path that a puppet may wait for; release(path) makes the file
//   ask(what)       of the test: kill, start (the daemon)
//   afterwards(f)   is done in the end, also after a failure
//   allow(pattern)  what the console may say; all else that is an error fails the script
//   figure(words)   for the test's log; shot(name) keeps a picture of the page
//
// It fails by throwing, and, whatever it says, if the page has said an error, thrown one,
// violated its Content-Security-Policy, opened a dialog of the browser, or asked another
// origin for anything.

import assert from 'node:assert/strict';
import {execFile} from 'node:child_process';
import {writeFileSync} from 'node:fs';
import {createRequire} from 'node:module';
import {join} from 'node:path';
import {createInterface} from 'node:readline';
import * as actions from './actions.mjs';
import * as hostile from './hostile.mjs';
import * as live from './live.mjs';
import * as looks from './looks.mjs';
import * as many from './many.mjs';
import * as talk from './talk.mjs';
import * as views from './views.mjs';

const require = createRequire(join(process.env.BROWSER_MODULES, 'driver.js'));
const {chromium} = require('playwright-core');
const scripts = {...actions, ...live, ...views, ...hostile, ...many, ...looks, ...talk};
const PATIENCE = Number(process.env.BROWSER_PATIENCE || 60000); // ms that anything may take

const say = (line) => process.stdout.write(JSON.stringify(line) + '\n');
const heard = createInterface({input: process.stdin})[Symbol.asyncIterator]();

const browser = await chromium.launch({
  executablePath: process.env.BROWSER_CHROMIUM,
  args: ['--disable-gpu', ...(process.getuid?.() === 0 ? ['--no-sandbox'] : [])],
});
say({ready: browser.version()});
for (;;) {
  const {value, done} = await heard.next();
  if (done) break;
  say({done: true, ...(await play(JSON.parse(value)))});
}
await browser.close();

async function play({play: name, world, args}) {
  const report = {error: '', steps: [], console: [], figures: []};
  const faults = [],
    allowed = [],
    after = [];
  let doing = 'begin';
  const fault = (line) => {
    report.console.push(line);
    faults.push(line);
  };
  const note = (page) => {
    page.on('console', (m) => {
      const line = `${m.type()}: ${m.text().slice(0, 500)} (${m.location().url})`;
      if (m.type() === 'error') fault(line);
      else report.console.push(line);
    });
    page.on('pageerror', (e) => fault('thrown: ' + e.message.slice(0, 500)));
    page.on('dialog', (d) => {
      fault(`dialog: ${d.type()} ${d.message()}`);
      d.dismiss().catch(() => {});
    });
    page.on('request', (r) => {
      if (!r.url().startsWith(world.url + '/') && !r.url().startsWith('data:')) fault('request to elsewhere: ' + r.url());
    });
  };
  const open = async (options = {}) => {
    const context = await browser.newContext({baseURL: world.url, viewport: {width: 1280, height: 900}, ...options});
    context.setDefaultTimeout(PATIENCE);
    context.on('page', note);
    await context.addInitScript(() => {
      document.addEventListener('securitypolicyviolation', (e) =>
        console.error('CSP violation: ' + e.violatedDirective + ' ' + e.blockedURI + ' ' + e.sample),
      );
    });
    return {context, page: await context.newPage()};
  };

  const t = {
    args,
    world,
    open,
    step: async (what, f) => {
      doing = what;
      const began = performance.now();
      try {
        return await f();
      } finally {
        report.steps.push(`${what} (${Math.round(performance.now() - began)} ms)`);
      }
    },
    cli: (...words) =>
      new Promise((resolve, reject) => {
        const env = Object.fromEntries(world.env.map((v) => v.split(/=(.*)/s).slice(0, 2)));
        const options = {env, cwd: world.dir, maxBuffer: 1 << 26, timeout: 60000};
        execFile(world.scheduler, ['--state', world.state, '--config', world.config, ...words], options, (error, out, err) =>
          error ? reject(Object.assign(new Error(`scheduler ${words.join(' ')}: ${error.message}\n${err}`), {code: error.code})) : resolve(out),
        );
      }),
    link: async (role = 'operate') => JSON.parse(await t.cli('ui', '--json', '--role', role)).url,
    login: async (role = 'operate', page = t.page) => {
      await page.goto(await t.link(role));
      await page.locator('html[data-ready="true"][data-connection="live"]').waitFor();
    },
    go: async (address, page = t.page) => {
      await page.evaluate((a) => (location.hash = '#' + a), address);
      await page.waitForFunction((a) => location.hash === '#' + a && document.documentElement.dataset.ready === 'true', address);
    },
    at: (id, page = t.page) => page.getByTestId(id),
    text: (locator, words) => locator.filter({hasText: words}).first().waitFor(),
    none: (locator) => locator.first().waitFor({state: 'hidden'}),
    file: (name) => join(world.dir, name),
    release: (path) => writeFileSync(path, ''),
    puppet: (id, acts, more = {}) => ({
      id,
      worker: 'puppet',
      workspace: {path: world.repo},
      instructions: JSON.stringify(acts) + '\n',
      ...more,
    }),
    chat: (id, script, more = {}) => ({
      id,
      worker: 'chat',
      workspace: {isolation: 'none'},
      capabilities: ['read', 'edit'],
      ask: {for: ['commands', 'writes', 'words'], wait: '10m'},
      instructions: script.join('\n') + '\n',
      ...more,
    }),
    submit: async (jobs, {tenant = 'tests', ...more} = {}) => {
      const path = join(world.dir, 'jobs-' + Math.random().toString(36).slice(2) + '.yaml');
      writeFileSync(path, JSON.stringify({tenant, ...more, jobs}));
      const answer = JSON.parse(await t.cli('submit', '--json', path));
      return Object.fromEntries(answer.jobs.map((e) => [e.spec.id, e]));
    },
    job: async (id) => JSON.parse(await t.cli('show', '--json', id)),
    ended: async (...ids) => {
      await t.cli('wait', '--timeout', '60s', '--json', ...ids).catch((error) => {
        if (error.code !== 1) throw error; // 1: one of them has failed, which some tests want
      });
    },
    ask: async (what) => {
      say({ask: what});
      const answer = JSON.parse((await heard.next()).value);
      if (answer.error) throw new Error(`${what}: ${answer.error}`);
    },
    allow: (pattern) => allowed.push(pattern),
    afterwards: (undo) => after.push(undo),
    figure: (words) => report.figures.push(words),
    shot: (file, page = t.page, options = {}) =>
      page.screenshot({path: join(process.env.BROWSER_SCREENSHOTS, file + '.png'), animations: 'disabled', ...options}),
    modules: require,
    patience: PATIENCE,
  };
  let context;
  try {
    if (!scripts[name]) throw new Error(`there is no script ${name}`);
    ({context, page: t.page} = await open());
    t.context = context;
    await scripts[name](t);
    const bad = faults.filter((line) => !/\/favicon\.ico\)$/.test(line) && !allowed.some((a) => a.test(line)));
    assert.deepEqual(bad, [], 'the page has said errors');
  } catch (error) {
    report.error = `${name}, at "${doing}": ${error.stack || error}`;
    await t.page?.screenshot({path: join(process.env.BROWSER_SCREENSHOTS, `failed-${name}.png`), timeout: 5000}).catch(() => {});
  }
  for (const undo of after) await undo().catch((error) => (report.error ||= String(error)));
  for (const c of browser.contexts()) await c.close();
  report.console = report.console.slice(-60);
  return report;
}
