// How the pages look, and whether they can be used by keyboard and by a screen
// reader: all of them, in light and dark, on a desk and on a phone.

import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';
import {stagesOf} from './views.mjs';

const DESK = {width: 1280, height: 900},
  PHONE = {width: 360, height: 740};

// furnish makes something for each page to show, and returns their addresses.
async function furnish({submit, puppet, chat, ended, file, cli, job}) {
  const word = (n) => ({line: {type: 'text', text: n}});
  const work = [
    word('I look at the login form first.'),
    {line: {type: 'command', phase: 'start', id: '1', command: 'go test ./login'}},
    {line: {type: 'command', phase: 'end', id: '1', exit_code: 1, ms: 2140, output: '--- FAIL: TestLogin'}},
    {line: {type: 'usage', input_tokens: 5210, output_tokens: 312, cost_usd: 0.0123}},
    {line: {type: 'step', step: 'look', inputs: 'login', result: {files: 12}}},
    {write: 'login/login.go', text: 'package login\n\n// Check refuses an empty password.\nfunc Check(p string) bool { return p != "" }\n'},
    {write: 'README.md', text: 'A shop, with a login.\n'},
    {line: {type: 'result', status: 'completed', answer: 'The form refuses an empty password now; a test shows it.'}},
  ];
  const agents = [{name: 'reviewer', worker: 'puppet', domains: ['web'], capabilities: ['read'], system_prompt: 'You are hard to please.'}];
  const jobs = {
    ...(await submit(
      [
        puppet('fix-login', work, {evaluation: {domain: 'dashboard', sla: '10m'}}),
        puppet('tidy', [{line: {type: 'result', status: 'failed', class: 'CONFIG', message: 'There is no model of that name.'}}]),
        puppet('contract', work, {oversight: {mode: 'supervised'}}),
        puppet('long-one', [word('Reading the whole of it.'), {await: file('looks-never')}]),
      ],
      {tenant: 'website'},
    )),
    ...(await submit(
      [
        puppet('plan', [{line: {type: 'result', status: 'completed', answer: 'three parts'}}]),
        puppet('parts', [], {needs: 'plan', for_each: ['a', 'b', 'c']}),
        puppet('docs', [{await: file('looks-never')}], {needs: 'plan'}),
        puppet('review', [], {needs: ['parts', 'docs'], worker: undefined, agent: 'reviewer', domain: 'web'}),
      ],
      {tenant: 'shop', agents},
    )),
  };
  const {talk} = await submit(
    [
      chat('limit-uploads', [
        'say I read the upload handler first: a file is written before its size is known. I would bound it while it is read, and answer 413 beyond a limit. Which one?',
        'wait',
        'write upload/limit.go package upload',
        'say The limit is in place. Its migration is not run yet.',
        'ask run psql -f migrations/014_limit.sql',
      ]),
      chat('pick', ['say Both parsers pass the tests.', 'choose keep-both the-new-one the-old-one']),
    ],
    {tenant: 'website'},
  ).then((all) => ({talk: all['limit-uploads']}));
  await cli('tell', talk.id, 'Ten megabytes, please. And answer in JSON, as the other handlers do.');
  const {jobs: stages, pipelines} = stagesOf(['one', 'two', 'bad']);
  await submit(stages, {pipelines, tenant: 'shop'});
  await ended(jobs['fix-login'].id, jobs.tidy.id, jobs.plan.id);
  await cli('nodes', 'cordon', 'spare', '--why', 'a new kernel');
  await cli('evaluate', jobs['fix-login'].id, '--quality', '0.9', '--by', 'anna', '-m', 'small and right');
  for (let n = 0; n < 200 && (await job(jobs.contract.id)).job.held !== 'approval'; n++);
  for (let n = 0; n < 400 && JSON.parse(await cli('approvals', 'ls', '--json')).questions?.length !== 2; n++);
  return {
    overview: '/',
    keys: '/',
    jobs: '/jobs',
    job: '/jobs/' + jobs['fix-login'].id,
    'job-running': '/jobs/' + jobs['long-one'].id,
    'job-approval': '/jobs/' + jobs.contract.id,
    'job-talk': '/jobs/' + talk.id,
    'job-comments': '/jobs/' + jobs.contract.id,
    approvals: '/approvals',
    letters: '/dead-letters',
    workflows: '/workflows',
    workflow: '/workflows/' + jobs.plan.batch,
    pipelines: '/pipelines',
    pipeline: '/pipelines/words',
    timeline: '/timeline',
    agents: '/agents',
    nodes: '/nodes',
    submit: '/submit',
    'submit-file': '/submit?form=file',
  };
}

// settled waits until nothing is fetched and the page has been drawn.
async function settled(page) {
  await page.waitForLoadState('load');
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
  await page.waitForFunction(() => !document.querySelector('.loading, [aria-busy="true"]'));
}

export async function looks(t) {
  const {open, step, login, go, shot, modules, figure} = t;
  const axe = readFileSync(modules.resolve('axe-core/axe.min.js'), 'utf8');
  const pages = await step('furnish', () => furnish(t));
  const acts = {
    keys: (page) => page.keyboard.press('?'),
    'job-comments': async (page) => {
      if (await page.getByTestId('say-comment').count()) return;
      const at = (id) => page.getByTestId(id);
      await at('line-comment').first().evaluate((el) => el.click());
      await at('comment-text').fill('Say which shop: there are two.');
      await at('comment-add').click();
      await at('line-comment').nth(1).evaluate((el) => el.click());
      await at('comment-text').fill('And name the login page.');
      await at('say-text').fill('Nearly there, two remarks:');
    },
  };
  const wrong = [];
  const counts = {};
  for (const [look, options] of Object.entries({
    light: {colorScheme: 'light', viewport: DESK},
    dark: {colorScheme: 'dark', viewport: DESK},
    phone: {colorScheme: 'light', viewport: PHONE, isMobile: true, hasTouch: true},
  })) {
    // axe is put into the page, which its policy would not allow.
    const {context, page} = await open({...options, bypassCSP: true, reducedMotion: 'reduce'});
    await login('operate', page);
    for (const [name, address] of Object.entries(pages)) {
      await step(`${look}: ${name}`, async () => {
        await go(address, page);
        await settled(page);
        await acts[name]?.(page);
        await shot(`${name}-${look}`, page, {fullPage: true});
        const width = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
        if (width[0] > options.viewport.width) wrong.push(`${look} ${name}: ${width[0]} px wide in a window of ${options.viewport.width}`);
        await page.evaluate(axe);
        const {violations} = await page.evaluate(() =>
          window.axe.run(document, {runOnly: {type: 'tag', values: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice']}}),
        );
        for (const v of violations) {
          counts[v.impact] = (counts[v.impact] || 0) + 1;
          const at = v.nodes.map((n) => n.target.join(' ') + ': ' + (n.any[0]?.message || n.all[0]?.message || n.none[0]?.message || '')).slice(0, 3);
          const line = `${look} ${name}: ${v.impact} ${v.id}: ${v.help} (${v.nodes.length}): ${at.join(' | ')}`;
          if (v.impact === 'serious' || v.impact === 'critical') wrong.push(line);
          else figure(line);
        }
        if (acts[name]) await page.keyboard.press('Escape');
      });
    }
    await context.close();
  }
  figure(`${Object.keys(pages).length} pages, each light, dark and on a phone; violations by impact: ${JSON.stringify(counts)}`);
  assert.equal(wrong.join('\n'), '');
}

// keyboard: the skip link, the order of tabs, the menu on a phone, the theme.
export async function keyboard({page, open, step, login, go, at, submit, puppet, none, job}) {
  const {waits} = await submit([puppet('waits', [], {oversight: {mode: 'supervised'}})]);
  for (let n = 0; n < 200 && (await job(waits.id)).job.held !== 'approval'; n++); // so that its page changes no more
  await login();
  const reach = async (test, most = 60) => {
    for (let n = 1; n <= most; n++) {
      await page.keyboard.press('Tab');
      const {seen, found} = await page.evaluate((id) => {
        const el = document.activeElement,
          style = getComputedStyle(el),
          box = el.getBoundingClientRect();
        return {found: el.dataset.testid === id || el.id === id, seen: style.outlineStyle !== 'none' || style.boxShadow !== 'none' || box.width === 0};
      }, test);
      if (!found) continue;
      assert(seen, `${test} has the focus and does not show it`);
      return n;
    }
    throw new Error(`${test} is not reached by ${most} tabs`);
  };
  await step('the skip link comes first, and leads to the content', async () => {
    await page.reload();
    await page.locator('html[data-ready="true"]').waitFor();
    await page.evaluate(() => document.activeElement.blur());
    assert.equal(await page.locator('#skip').evaluate((el) => getComputedStyle(el).boxShadow), 'none', 'it casts a shadow into the page while it is away');
    assert.equal(await reach('skip', 1), 1);
    assert(await page.locator('#skip').isVisible());
    await page.keyboard.press('Enter');
    assert(await page.evaluate(() => Boolean(document.activeElement.closest('#page'))));
    assert.equal(await page.evaluate(() => location.hash === '#page'), false, 'the skip link has left the page');
  });
  await step('to the main actions', async () => {
    await reach('pause', 5);
    await go('/jobs/' + waits.id);
    await at('action-approve').waitFor();
    await page.locator('h1').focus();
    for (const id of ['action-approve', 'action-reject', 'action-cancel']) await reach(id, 3);
    await go('/jobs');
    await page.locator('h1').focus();
    for (const id of ['search', 'filter-tenant', 'filter-worker', 'order', 'filter-letters', 'filter-status-all', 'filter-status-failed']) await reach(id, 8);
  });
  await step('a dialog holds the focus, and gives it back', async () => {
    await go('/jobs/' + waits.id);
    await at('action-reject').focus();
    await page.keyboard.press('Enter');
    await at('dialog-reject').waitFor();
    for (let n = 0; n < 8; n++) {
      await page.keyboard.press('Tab');
      assert(await page.evaluate(() => document.activeElement === document.body || Boolean(document.activeElement.closest('dialog'))));
    }
    await page.keyboard.press('Escape');
    await none(at('dialog-reject'));
    assert.equal(await page.evaluate(() => document.activeElement.dataset.testid), 'action-reject');
  });
  await step('"?" shows the keys, but not while somebody writes', async () => {
    await go('/jobs');
    await at('search').focus();
    await page.keyboard.press('?');
    assert.equal(await at('dialog-keys').count(), 0);
    assert.equal(await at('search').inputValue(), '?');
    await at('search').fill('');
    await page.locator('h1').focus();
    await page.keyboard.press('?');
    await at('dialog-keys').getByText('search jobs').waitFor();
    await page.keyboard.press('Escape');
    await none(at('dialog-keys'));
    await at('keys').focus();
    await page.keyboard.press('Enter');
    await at('dialog-keys').waitFor();
    await page.keyboard.press('Escape');
    await none(at('dialog-keys'));
    assert.equal(await page.evaluate(() => document.activeElement.id), 'keys');
  });
  await step('the theme is changed and kept', async () => {
    for (const want of ['light', 'dark']) {
      await at('theme').focus();
      await page.keyboard.press('Enter');
      await page.locator(`html[data-theme="${want}"]`).waitFor();
    }
    await page.reload();
    await page.locator('html[data-theme="dark"][data-ready="true"]').waitFor();
  });
  await step('the menu of a phone', async () => {
    const phone = await open({viewport: PHONE, isMobile: true, hasTouch: true});
    await login('operate', phone.page);
    await none(at('nav-jobs', phone.page));
    await phone.page.locator('#menu').tap();
    await at('nav-jobs', phone.page).tap();
    await phone.page.locator('html[data-page="jobs"][data-ready="true"]').waitFor();
    await none(at('nav-approvals', phone.page));
  });
}
