// What the pages show: lists, diffs, graphs, pipelines, the inbox, agents, the timeline.

import assert from 'node:assert/strict';

// overview: what runs now, and what tenants were granted.
export async function overview({step, login, at, text, submit, puppet, file, release, cli, none, afterwards}) {
  afterwards(() => cli('grant', 'rm', 'granted'));
  await cli('grant', 'granted', '--cost', '20', '--tokens', '1000');
  const spends = {line: {type: 'usage', input_tokens: 240, output_tokens: 10, cost_usd: 5}};
  const gate = file('overview-go');
  await submit([puppet('runs-now', [spends, {await: gate}])], {tenant: 'granted'});
  await login();
  await step('what runs', async () => {
    await text(at('running-now').locator('tr'), /runs-now.*granted.*puppet/s);
  });
  await step('a grant, and how much of it is used', async () => {
    await text(at('budgets'), /granted.*in all/);
    await text(at('budgets'), '$5.00 of $20.00');
    await text(at('budgets'), '250 of 1.0k tokens');
    await text(at('budgets'), /All tenants budget per day\$.* of \$1,000/);
    await none(at('budgets').getByText('neither a budget'));
  });
  await step('what has ended is gone', async () => {
    release(gate);
    await none(at('running-now').locator('tr').filter({hasText: 'runs-now'}));
    await text(at('budgets'), /granted budget of the policy per day250 of 5.0k tokens/); // which counts attempts that have ended
  });
}

// jobList: filters and search, also by the address.
export async function jobList({page, step, login, go, at, text, submit, puppet, ended, none, file, job}) {
  const jobs = {
    ...(await submit([puppet('apple', []), puppet('banana', [{line: {type: 'result', status: 'failed', class: 'CONFIG', message: 'no'}}])], {
      tenant: 'fruit',
    })),
    ...(await submit([puppet('carrot', [{await: file('carrot-go')}])], {tenant: 'roots'})),
    ...(await submit([puppet('date', [], {oversight: {mode: 'supervised'}})], {tenant: 'palms'})),
  };
  await ended(jobs.apple.id, jobs.banana.id);
  for (let n = 0; n < 200 && (await job(jobs.date.id)).job.held !== 'approval'; n++);
  const row = (name) => page.locator(`[data-testid="job-row"][data-key="${jobs[name].id}"]`);
  await login();
  await go('/jobs');
  await step('all', async () => {
    for (const name of Object.keys(jobs)) await row(name).waitFor();
  });
  await step('by tenant', async () => {
    await at('filter-tenant').selectOption('fruit');
    await none(row('carrot'));
    await row('apple').waitFor();
    await text(at('total'), /^2 jobs/);
    assert.match(page.url(), /tenant=fruit/);
  });
  await step('by state', async () => {
    await at('filter-tenant').selectOption('');
    for (const [state, one] of [
      ['running', 'carrot'],
      ['completed', 'apple'],
      ['failed', 'banana'],
      ['waiting_approval', 'date'],
    ]) {
      await at('filter-status-' + state).focus();
      await page.keyboard.press('Enter');
      await row(one).waitFor();
      for (const other of Object.keys(jobs).filter((n) => n !== one)) await none(row(other));
      assert.equal(await at('filter-status-' + state).getAttribute('aria-pressed'), 'true');
      assert.match(page.url(), new RegExp('status=' + state));
    }
    await page.reload();
    await row('date').waitFor();
    assert.equal(await at('filter-status-waiting_approval').getAttribute('aria-pressed'), 'true', 'the address does not keep the state');
    await at('filter-status-all').click();
    await row('apple').waitFor();
  });
  await step('dead letters', async () => {
    await at('filter-letters').check();
    await row('banana').waitFor();
    await none(row('apple'));
    await at('filter-letters').uncheck();
  });
  await step('search', async () => {
    await page.locator('h1').click();
    await page.keyboard.press('/');
    await page.keyboard.type('APPL');
    await row('apple').waitFor();
    await none(row('banana'));
    await at('search').fill(jobs.carrot.id.slice(0, 14));
    await row('carrot').waitFor();
    await at('search').fill('no such job anywhere');
    await none(at('job-row'));
    await page.getByText('No jobs match').waitFor();
  });
  await step('by the address', async () => {
    await go('/jobs?tenant=roots&order=oldest');
    await row('carrot').waitFor();
    await none(row('apple'));
    assert.equal(await at('filter-tenant').inputValue(), 'roots');
  });
  await step('open one', async () => {
    await row('carrot').getByRole('link').click();
    await page.getByRole('heading', {name: 'carrot'}).waitFor();
  });
  await step('the short id of the page is one for the command line, the search and the address', async () => {
    const short = (await page.locator('.crumb').textContent()).split('/').at(-1).trim();
    assert.equal((await job(short)).job.id, jobs.carrot.id);
    await go('/jobs?q=' + short);
    await row('carrot').waitFor();
    await none(row('apple'));
    await go('/jobs/' + short);
    await page.getByRole('heading', {name: 'carrot'}).waitFor();
  });
  await step('cancel it', async () => {
    await at('action-cancel').click();
    await at('dialog-confirm').click();
    await text(at('job-state'), /cancelled/i);
  });
}

// diff: what a job has changed, by file, with its lines.
export async function diff({step, login, go, at, text, submit, puppet, ended}) {
  const {changer} = await submit([
    puppet('changer', [
      {write: 'README.md', text: 'a repository\nwith a second line\n'},
      {write: 'sub/new file.txt', text: 'one\ntwo\n'},
      {write: 'long.txt', text: Array.from({length: 900}, (_, i) => `line ${i}`).join('\n') + '\n'},
    ]),
  ]);
  await ended(changer.id);
  await login();
  await go('/jobs/' + changer.id);
  const files = at('diff-file');
  await step('three files', async () => {
    await text(files, 'README.md');
    assert.equal(await files.count(), 3);
    await text(at('diff'), /3 files/);
  });
  await step('a changed one', async () => {
    const readme = files.filter({hasText: 'README.md'});
    await text(readme.locator('tr.add'), 'with a second line');
    assert.equal(await readme.locator('tr.add').count(), 1);
    assert.equal(await readme.locator('tr.add .ln').nth(1).getAttribute('data-n'), '2');
    await text(readme.locator('tr.same'), 'a repository');
  });
  await step('a new one', async () => {
    const made = files.filter({hasText: 'sub/new file.txt'});
    await text(made, 'added');
    await text(made.locator('tr.add'), 'two');
  });
  await step('a long one is folded', async () => {
    const long = files.filter({hasText: 'long.txt'});
    assert.equal(await long.locator('tr.add').count(), 0);
    await long.locator('summary').click();
    await long.locator('tr.add').nth(899).waitFor({state: 'attached'});
  });
}

// meanwhile: what happens while a page is being fetched is on it.
export async function meanwhile({page, step, login, go, submit, puppet, file, release, ended}) {
  const gate = file('meanwhile-go');
  const {held, next} = await submit([puppet('held', [{await: gate}]), puppet('next', [], {needs: 'held'})]);
  await login();
  await step('a workflow that ends before its page is there', async () => {
    await page.route(
      '**/v1/workflows/' + held.batch,
      async (route) => {
        const response = await route.fetch(); // both are unfinished in it
        release(gate);
        await ended(held.id, next.id);
        await route.fulfill({response});
      },
      {times: 1},
    );
    await go('/workflows/' + held.batch);
    for (const name of ['held', 'next']) await page.locator(`[data-testid="graph-node"][data-name="${name}"][data-state="completed"]`).waitFor();
  });
}

// workflow: a graph whose nodes change as the jobs do.
export async function workflow({page, step, login, go, at, text, submit, puppet, file, release}) {
  const gate = file('graph-go'),
    last = file('graph-last');
  const jobs = await submit([
    puppet('plan', [{line: {type: 'result', status: 'completed', answer: 'planned'}}]),
    puppet('left', [{await: gate}], {needs: 'plan'}),
    puppet('right', [], {needs: 'plan', for_each: ['a', 'b', 'c']}),
    puppet('join', [{await: last}], {needs: ['left', 'right']}),
  ]);
  const node = (name, state) => page.locator(`[data-testid="graph-node"][data-name="${name}"]` + (state ? `[data-state="${state}"]` : ''));
  await login();
  await step('the list', async () => {
    await go('/workflows');
    await at('workflow-row').filter({hasText: /4|7/}).first().waitFor();
    await page.locator(`[data-testid="workflows"] a[data-key="${jobs.plan.batch}"]`).click();
    await page.locator('html[data-page="workflows"][data-ready="true"]').waitFor();
  });
  await step('states, while it runs', async () => {
    await node('plan', 'completed').waitFor();
    await node('left', 'running').waitFor();
    await node('right', 'completed').waitFor();
    await node('join', 'pending').waitFor();
    assert.equal(await page.locator('[data-testid="graph-edge"]').count(), 4);
  });
  await step('and afterwards, without a reload', async () => {
    await page.evaluate(() => (window.__loaded = 'once'));
    release(gate);
    await node('left', 'completed').waitFor();
    await node('join', 'running').waitFor();
    release(last);
    await node('join', 'completed').waitFor();
    assert.equal(await page.evaluate(() => window.__loaded), 'once');
    await text(at('graph-progress'), /./);
  });
  await step('the parts of one', async () => {
    await at('graph-expand').first().click();
    await page.locator('[data-testid="graph-part"]').nth(2).waitFor();
  });
  await step('as a table', async () => {
    await at('view-table').click();
    await at('graph-row').filter({hasText: 'join'}).waitFor();
    await at('view-graph').click();
  });
  await step('by keyboard to a job', async () => {
    await node('plan').focus();
    await page.keyboard.press('Enter');
    await page.getByRole('heading', {name: 'plan'}).waitFor();
  });
}

// stagesOf is a job file of two stages; the second cannot handle the word "bad".
export const stagesOf = (events, repo) => ({
  jobs: [
    {
      id: 'split',
      worker: 'shell',
      instructions:
        `printf '%s' '${JSON.stringify({events: events.map((word) => ({type: 'word', data: {word}}))})}'`.replaceAll('$', '$'),
      input: [{start: 'here'}],
    },
    {
      id: 'count',
      worker: 'shell',
      instructions: `if grep -q '"bad' "$AGENTSCHED_INPUT"; then exit 3; fi; printf '%s' '{"events":[{"type":"counted","data":{"n":1}}]}'`,
      limits: {max_attempts: 1},
    },
  ],
  pipelines: [
    {
      id: 'words',
      stages: [
        {job: 'split', publishes: ['word']},
        {job: 'count', subscribes: ['word'], publishes: ['counted']},
      ],
    },
  ],
  repo,
});

// pipelines: stages, lag, events, dead letters.
export async function pipelines({page, step, login, go, at, text, submit}) {
  const {jobs, pipelines} = stagesOf(['one', 'two', 'bad'], '');
  await submit(jobs, {pipelines});
  await login();
  await step('the list', async () => {
    await go('/pipelines');
    await text(at('pipeline'), 'words');
    await page.locator('[data-testid="stage"][data-stage="count"]').first().waitFor();
    await text(at('stage-lag'), /./);
    await at('pipeline').first().getByRole('link', {name: 'words'}).first().click();
  });
  await step('its events', async () => {
    await page.locator('html[data-page="pipelines"][data-ready="true"]').waitFor();
    await text(at('event-row'), 'word');
    await text(at('event-row'), 'counted');
    const over = await page.locator('.events-for').last().evaluate((cell) => {
      cell.textContent = '1,000,001, 1,000,002, 1,000,003 and 12 more';
      return cell.scrollWidth - cell.clientWidth;
    });
    assert(over <= 0, `the numbers of events run ${over} pixels into the data`);
    await at('filter-type').selectOption('counted');
    await at('event-row').filter({hasText: '"word"'}).first().waitFor({state: 'hidden'});
  });
  await step('the event that could not be handled', () => text(at('pipeline-letters'), 'count'));
  await step('a new run replays it by type', async () => {
    await at('pipeline-rerun').click();
    await at('field-types').fill('word');
    await at('dialog-confirm').click();
    await text(at('pipeline-replays'), /from stage count on: word/);
    await page.locator('[data-testid="stage"][data-stage="split"][data-state="recorded"]').waitFor();
    await page.locator('[data-testid="stage"][data-stage="count"][data-state="ended"]').waitFor();
  });
}

// inbox: approvals by keyboard alone.
export async function inbox({page, step, login, go, at, text, submit, puppet, none, job}) {
  const more = {oversight: {mode: 'supervised'}};
  const acts = (n) => [{line: {type: 'result', status: 'completed', answer: 'the answer of ' + n}}];
  const names = ['in-1', 'in-2', 'in-3'];
  const jobs = await submit(names.map((n) => puppet(n, acts(n), more)), {tenant: 'inbox'});
  await login();
  await go('/approvals');
  const card = (n) => page.locator(`[data-testid="approval"][data-key="${jobs[n].id}"]`);
  for (const n of names) await text(card(n), 'the answer of ' + n);
  const focused = () => page.evaluate(() => document.activeElement.closest('[data-testid="approval"]')?.dataset.key);
  const reach = async (key, n) => {
    for (let i = 0; i < 20 && (await focused()) !== jobs[n].id; i++) await page.keyboard.press(key);
    assert.equal(await focused(), jobs[n].id, `${key} does not reach ${n}`);
  };
  // They are in the order in which they were asked about.
  const order = await page.getByTestId('approval').evaluateAll((all) => all.map((e) => e.dataset.key));
  const [first, second, third] = names.toSorted((a, b) => order.indexOf(jobs[a].id) - order.indexOf(jobs[b].id));
  await step('j and k', async () => {
    await reach('j', second);
    await reach('k', first);
  });
  await step('a approves', async () => {
    await page.keyboard.press('a');
    await at('dialog-approve').waitFor();
    await page.keyboard.type('fine');
    await page.keyboard.press('Control+Enter');
    await none(card(first));
    await none(at('dialog-approve'));
    // The card may go before the answer's own answer comes, and the focus with it until then.
    await page.waitForFunction(() => document.activeElement.closest('[data-testid="approval"]'));
  });
  await step('r rejects, with a comment', async () => {
    await reach('k', second).catch(() => reach('j', second));
    await page.keyboard.press('r');
    await at('dialog-reject').waitFor();
    await page.keyboard.type('once more, please');
    await page.keyboard.press('Control+Enter');
    await none(at('dialog-reject'));
    await text(card(second), /1 rejection/);
  });
  await step('Escape leaves it as it is', async () => {
    await reach('k', third).catch(() => reach('j', third));
    await page.keyboard.press('a');
    await at('dialog-approve').waitFor();
    await page.keyboard.press('Escape');
    await none(at('dialog-approve'));
    await card(third).waitFor();
  });
  await step('o opens the job', async () => {
    await reach('k', third).catch(() => reach('j', third));
    await page.keyboard.press('o');
    await page.getByRole('heading', {name: third}).waitFor();
  });
  await step('the store agrees', async () => {
    assert.equal((await job(jobs[first].id)).job.approval.comment, 'fine');
    assert.equal((await job(jobs[second].id)).job.rejections, 1);
  });
}

// agents: who was declared, and how reputation has moved.
export async function agents({page, step, login, go, at, text, submit, puppet, ended, cli}) {
  const profile = {name: 'writer', worker: 'puppet', system_prompt: 'You write little.', domains: ['legal'], capabilities: ['read']};
  for (const n of [1, 2, 3]) {
    const jobs = await submit([puppet('text-' + n, [], {worker: undefined, agent: 'writer', evaluation: {domain: 'legal', sla: '1m'}})], {
      agents: [profile],
      tenant: 'press',
    });
    await ended(jobs['text-' + n].id);
    await cli('evaluate', jobs['text-' + n].id, '--quality', String(0.2 * n), '--by', 'anna', '-m', 'comment ' + n);
  }
  const {nobodys} = await submit([puppet('nobodys', [])], {tenant: 'press'});
  await ended(nobodys.id);
  await login();
  await step('profile', async () => {
    await go('/agents');
    const row = at('agent-row').filter({hasText: 'writer'});
    await text(row, 'press');
    await text(row, 'legal');
    await row.getByTestId('agent-profile').locator('summary').click();
    await row.getByText('You write little.').waitFor();
  });
  await step('reputation over time', async () => {
    await at('filter-kind').selectOption('agent');
    await at('reputation-row').filter({hasText: 'writer'}).getByTestId('reputation-link').click();
    await text(at('reputation-detail'), /\d evaluations/);
    await at('reputation-chart').waitFor();
    await page.locator('[data-testid="dimension"][data-dimension="quality"]').filter({hasText: '0.60'}).waitFor();
    await text(at('reputation-detail'), 'comment 3');
  });
  await step('its jobs', async () => {
    await at('agent-row').filter({hasText: 'writer'}).getByRole('link', {name: 'writer'}).first().click();
    await page.locator('html[data-page="jobs"][data-ready="true"]').waitFor();
    await text(at('total'), /^3 jobs/);
    await text(at('filter-agent'), 'writer');
    await at('filter-agent').click();
    await text(at('total'), /^4 jobs/);
  });
}

// timeline: attempts as bars, by mouse, keyboard and as a table.
export async function timeline({page, step, login, go, at, text, submit, puppet, ended, file, release}) {
  const gate = file('bar-go');
  const many = Array.from({length: 14}, (_, n) => ({id: 'quick-' + n, worker: 'shell', instructions: 'true'}));
  const {bar, ...quick} = await submit([puppet('bar', []), ...many]);
  await ended(bar.id, ...Object.values(quick).map((e) => e.id));
  await login();
  await go('/timeline');
  const drawn = (name) => at('timeline').getAttribute('data-' + name);
  await step('bars, in a span that fits them', async () => {
    await page.waitForFunction(() => Number(document.querySelector('[data-testid="timeline"]')?.dataset.bars) > 14);
    assert.match(await drawn('span'), /^(2|15)m$/);
  });
  await step('another span stays in the address', async () => {
    await at('span-6h').click();
    assert.match(page.url(), /span=6h/);
    assert.equal(await drawn('span'), '6h');
    await page.locator('[data-testid="timeline"][aria-busy="false"]').waitFor(); // all of it is there
  });
  await step('bars that lie close do not make a row each', async () => {
    const rows = Number(await drawn('rows'));
    assert(rows <= 2 * 13, `${rows} rows of two workers`);
    await at('timeline-rows').click();
    assert(Number(await drawn('rows')) > rows, 'all rows are no more rows');
    await at('timeline-rows').click();
    assert.equal(Number(await drawn('rows')), rows);
    await at('span-2m').click();
  });
  await step('by keyboard', async () => {
    await at('timeline').focus();
    await page.keyboard.press('End');
    await page.keyboard.press('ArrowLeft');
    await text(at('timeline-detail'), /./);
  });
  await step('as a table', async () => {
    await at('timeline-table').locator('summary').click();
    await text(at('timeline-row'), 'bar');
  });
  await step('a running job grows', async () => {
    const before = Number(await at('timeline').getAttribute('data-bars'));
    await submit([puppet('another', [{await: gate}])]);
    await page.waitForFunction((n) => Number(document.querySelector('[data-testid="timeline"]').dataset.bars) > n, before);
    release(gate);
  });
  await step('earlier', async () => {
    await at('timeline-earlier').click();
    await at('timeline-now').click();
  });
}

// steps: which came from the store.
export async function steps({step, login, go, at, text, submit, puppet}) {
  const {stepper} = await submit([
    puppet('stepper', [
      {line: {type: 'step', step: 'collect', inputs: 'all', result: {n: 1}}},
      {only: 1, line: {type: 'result', status: 'failed', class: 'CRASH', message: 'broke'}},
    ]),
  ]);
  await login();
  await go('/jobs/' + stepper.id);
  await step('the step, fresh and from the store', async () => {
    await text(at('job-state'), /completed/i);
    await text(at('steps'), 'collect');
    await text(at('attempts'), 'broke');
  });
}
