// What a person does with jobs: signing in, submitting, deciding, cancelling.

import assert from 'node:assert/strict';

// link: the one-time link signs in, once; without it nothing is told.
export async function link({page, context, step, cli, at, open, allow, none}) {
  allow(/status of 401/);
  await step('without a session', async () => {
    await page.goto('/');
    await at('unauthorized').waitFor();
    assert.equal(await page.locator('#nav a').count(), 0, 'pages are offered to nobody');
    assert.equal((await context.request.get('/v1/jobs')).status(), 401);
  });
  const url = (await cli('ui', '--no-open')).trim();
  await step('follow the link', async () => {
    await page.goto(url);
    await page.locator('html[data-page="overview"][data-ready="true"][data-connection="live"]').waitFor();
    assert.match(await at('role').textContent(), /operate/);
    assert(!page.url().includes('code='), 'the code stays in the address');
    const [cookie] = await context.cookies();
    assert(cookie.httpOnly && cookie.sameSite === 'Strict', JSON.stringify({...cookie, value: ''}));
    assert.equal(await page.evaluate(() => document.cookie), '', 'scripts can read the session');
  });
  await step('follow it again, in another browser', async () => {
    const other = await open();
    const answer = await other.page.goto(url);
    assert(answer.status() >= 400, `the second time: ${answer.status()}`);
    assert.equal((await other.context.request.get('/v1/jobs')).status(), 401);
    await other.page.goto('/');
    await other.page.getByTestId('unauthorized').waitFor();
  });
  await step('the first is still signed in', async () => {
    await page.reload();
    await page.locator('html[data-page="overview"][data-connection="live"]').waitFor();
    await none(at('unauthorized'));
  });
}

// logout: the session is over in all tabs, at the server too.
export async function logout({page, context, step, login, at, allow, go}) {
  allow(/status of 401/);
  await login();
  await step('sign out', () => at('sign-out').click());
  await step('nothing is told any more', async () => {
    await at('unauthorized').waitFor();
    assert.equal((await context.request.get('/v1/jobs')).status(), 401);
    await page.reload();
    await at('unauthorized').waitFor();
  });
}

// submit: a job is filled in, and runs to its end before one's eyes.
export async function submit({page, step, login, go, at, text, world, file, release, job, allow}) {
  allow(/status of 400/);
  await login();
  const gate = file('submit-go');
  await step('fill in', async () => {
    await go('/submit');
    await at('field-worker').selectOption('puppet');
    await at('submit').click();
    await text(at('problem-instructions'), /./);
    await at('field-id').fill('from-the-page');
    await at('field-instructions').fill(
      JSON.stringify([{line: {type: 'text', text: 'I have begun.'}}, {await: gate}, {write: 'made.txt', text: 'made\n'}]),
    );
    await at('field-workspace_path').fill(world.repo);
    await at('field-tenant').fill('people');
    await at('submit').click();
  });
  await step('watch it run', async () => {
    await page.locator('html[data-page="jobs"]').waitFor();
    await page.getByRole('heading', {name: 'from-the-page'}).waitFor();
    await text(at('job-state'), /running/i);
    await text(at('log'), 'I have begun.');
  });
  await step('see it end', async () => {
    release(gate);
    await text(at('job-state'), /completed/i);
    await text(at('diff'), 'made.txt');
  });
  await step('a wrong one is refused beside its field', async () => {
    await go('/submit');
    await at('field-worker').selectOption('puppet');
    await at('field-id').fill('no/such name');
    await at('field-instructions').fill('[]');
    await at('field-workspace_isolation').selectOption('none');
    await at('submit').click();
    await text(at('problem-id'), 'no/such name');
  });
  await step('it is what the command line has', async () => {
    const {job: entry} = await job('from-the-page');
    assert.equal(entry.spec.tenant, 'people');
    assert.equal(entry.exit_kind, 'succeeded');
  });
}

// jobFile: a whole file is pasted, and its workflow is shown.
export async function jobFile({page, step, login, go, at, text, allow}) {
  allow(/status of 422|status of 400/);
  await login();
  await step('a file with a mistake', async () => {
    await go('/submit');
    await at('tab-file').click();
    await at('field-text').fill('jobs:\n  - id: a\n    wrker: shell\n');
    await at('submit').click();
    await page.getByText('did you mean worker').first().waitFor();
  });
  await step('the right one', async () => {
    await at('field-text').fill(
      'jobs:\n  - {id: first, worker: shell, instructions: "true"}\n  - {id: second, worker: shell, needs: first, instructions: "true"}\n',
    );
    await at('submit').click();
    await page.locator('html[data-page="workflows"][data-ready="true"]').waitFor();
    await page.locator('[data-testid="graph-node"][data-name="second"][data-state="completed"]').waitFor();
  });
}

const supervised = (max = 2) => ({oversight: {mode: 'supervised', max_retries: max}});

// approve: what waits for a person is approved on its page.
export async function approve({step, login, go, at, text, submit, puppet, job, none}) {
  await login();
  const {approved} = await submit([puppet('approved', [{write: 'a.txt', text: 'a\n'}], supervised())]);
  await step('it waits', async () => {
    await go('/jobs/' + approved.id);
    await text(at('why'), 'Waiting for approval');
    await text(at('approvals-count'), /\d waiting/);
  });
  await step('approve it', async () => {
    await at('action-approve').click();
    await at('field-comment').fill('Well done.');
    await at('dialog-confirm').click();
    await none(at('dialog-approve'));
    await text(at('job-state'), /completed/i);
    await none(at('action-approve'));
  });
  await step('the comment is kept', async () => assert.equal((await job(approved.id)).job.approval.comment, 'Well done.'));
}

// reject: only with a comment, which the next attempt is given.
export async function reject({step, login, go, at, text, submit, puppet, job}) {
  await login();
  const {rejected} = await submit([puppet('rejected', [], supervised())]);
  await go('/jobs/' + rejected.id);
  await step('without a comment it is not done', async () => {
    await at('action-reject').click();
    await at('dialog-confirm').click();
    await text(at('dialog-problem'), /missing/);
    await at('field-comment').fill('   ');
    await at('dialog-confirm').click();
    await text(at('dialog-problem'), /missing/);
    assert.equal((await job(rejected.id)).job.rejections || 0, 0);
  });
  await step('reject', async () => {
    await at('field-comment').fill('Use fewer words.');
    await at('dialog-confirm').click();
  });
  await step('see it done again, with the comment', async () => {
    await at('attempts').locator('tbody tr').nth(1).waitFor();
    await text(at('why'), 'Waiting for approval');
    await text(at('instructions'), 'Use fewer words.');
    await text(at('attempts'), /rejected|Use fewer words/i);
  });
}

// cancel: a running job is stopped.
export async function cancel({step, login, go, at, text, submit, puppet, file, none}) {
  await login();
  const {stopped} = await submit([puppet('stopped', [{line: {type: 'text', text: 'at work'}}, {await: file('never')}])]);
  await go('/jobs/' + stopped.id);
  await text(at('log'), 'at work');
  await step('think better of it', async () => {
    await at('action-cancel').click();
    await at('dialog-cancel').click();
    await none(at('dialog-cancel-job'));
    await text(at('job-state'), /running/i);
  });
  await step('cancel', async () => {
    await at('action-cancel').click();
    await at('dialog-confirm').click();
    await text(at('job-state'), /cancelled/i);
    await none(at('action-cancel'));
    await at('action-retry').waitFor();
  });
}

// requeue: a dead letter is found by its reason and done again.
export async function requeue({step, login, go, at, text, submit, puppet, ended, none}) {
  await login();
  const jobs = await submit([
    puppet('given-up', [{only: 1, line: {type: 'result', status: 'failed', class: 'CONFIG', message: 'the flux is missing'}}]),
    puppet('other', [{line: {type: 'result', status: 'failed', class: 'CONFIG', message: 'something else'}}]),
  ]);
  await ended(jobs['given-up'].id, jobs.other.id);
  const row = at('letter-row').filter({hasText: 'given-up'});
  await step('find it', async () => {
    await go('/dead-letters');
    await row.waitFor();
    await at('filter-grep').fill('the flux');
    await at('filter-grep').press('Enter');
    await none(at('letter-row').filter({hasText: 'something else'}));
    await row.waitFor();
  });
  await step('requeue it', async () => {
    assert(await at('letters-requeue').isDisabled());
    await row.getByTestId('letter-select').check();
    await at('letters-requeue').click();
    await at('dialog-confirm').click();
    await text(at('toast'), /Requeued 1 job/); // which goes after some seconds
    await none(row);
  });
  await step('it leads to its successor', async () => {
    await go('/jobs/' + jobs['given-up'].id);
    await text(at('why'), 'Requeued as');
    await at('why').getByRole('link').first().click();
    await text(at('why'), 'Does again');
  });
  await step('drop the other', async () => {
    await go('/dead-letters');
    await at('letter-row').filter({hasText: 'something else'}).getByTestId('letter-select').check();
    await at('letters-drop').click();
    await at('dialog-confirm').click();
    await none(at('letter-row').filter({hasText: 'something else'}));
  });
}

// pause: nothing begins until somebody resumes it.
export async function pause({step, login, go, at, text, submit, puppet, none, afterwards, cli, job, patience}) {
  afterwards(() => cli('resume', 'global').catch(() => {})); // it was resumed already
  await login();
  await step('pause', async () => {
    await at('pause').click();
    await at('field-reason').fill('the night');
    await at('dialog-confirm').click();
    await text(at('isolations'), 'the night');
  });
  const {patient} = await submit([puppet('patient', [])]);
  await step('a job waits, and the page says why', async () => {
    await text(at('isolations'), 'Everything is paused');
    // It is given to a core first, which refuses it.
    for (const until = performance.now() + patience; (await job(patient.id)).job.state !== 'queued'; )
      assert(performance.now() < until, 'it does not wait');
    await go('/jobs/' + patient.id);
    await text(at('job-state'), 'pending');
    await text(at('why'), /Waiting for the end of a pause.*the night/);
    await go('/');
  });
  await step('resume', async () => {
    await at('resume').click();
    await none(at('isolations'));
    await go('/jobs/' + patient.id);
    await text(at('job-state'), /completed/i);
  });
}

// nodes: a node that has not come is drained and uncordoned; one that is there says what it offers, as text.
export async function nodes({page, step, login, go, at, text, none, cli}) {
  await cli('nodes', 'cordon', 'spare', '--why', 'a new kernel');
  await login();
  await step('a cordon shows', async () => {
    await go('/nodes');
    await text(at('node-row'), /spare/);
    await text(at('node-state'), /unknown.*cordoned/);
    await text(at('nodes'), /a new kernel/);
  });
  await step('drain', async () => {
    await at('node-drain').click();
    await at('field-mode').selectOption('checkpoint');
    await at('field-why').fill('the night');
    await at('dialog-confirm').click();
    await text(at('nodes'), /the night/);
    const [spare] = JSON.parse(await cli('nodes', 'ls', '--json')).nodes;
    assert.equal(spare.cordon.why, 'the night');
  });
  await step('uncordon', async () => {
    await at('node-uncordon').click();
    await none(at('node-row'));
    assert.deepEqual(JSON.parse(await cli('nodes', 'ls', '--json')).nodes, []);
  });
  await step('what a node says is text', async () => {
    const payload = '<img src=x onerror="window.__xss=1">';
    const workers = [
      {kind: 'shell', ready: true},
      {kind: 'claude', ready: false, why: 'not logged in ' + payload},
    ];
    const one = {name: 'one', state: 'connected', host: payload, os: 'linux', arch: 'amd64', slots: 4, running: 3, labels: {gpu: 'yes'}, workers, cores: []};
    await page.route('**/v1/nodes', (route) => route.fulfill({json: {nodes: [one]}}));
    await page.reload();
    await text(at('node-row'), /one.*img src=x.*3 of 4.*gpu=yes/s);
    await text(at('node-workers'), /^claude not logged in .img/);
    assert.equal(await page.evaluate(() => window.__xss), undefined);
    await page.unroute('**/v1/nodes');
  });
}

// readOnly: who may read sees no actions, and the server refuses them all the same.
export async function readOnly({page, step, login, go, at, text, submit, puppet, ended, world}) {
  const jobs = await submit([
    puppet('waits-for-somebody', [], supervised()),
    puppet('a-letter', [{line: {type: 'result', status: 'failed', class: 'CONFIG', message: 'no'}}]),
  ]);
  const asked = jobs['waits-for-somebody'].id;
  await ended(jobs['a-letter'].id);
  await login('read');
  await text(at('role'), /read/);
  await step('no page offers an action', async () => {
    assert.equal(await at('nav-submit').count(), 0);
    assert.equal(await at('pause').count(), 0);
    for (const address of ['/jobs/' + asked, '/jobs/' + jobs['a-letter'].id]) {
      await go(address);
      await at('job-state').waitFor();
      assert.equal(await page.locator('[data-testid^="action-"]').count(), 0, address);
    }
    await go('/approvals');
    await text(at('approval'), 'waits-for-somebody');
    assert.equal((await at('approve').count()) + (await at('reject').count()), 0);
    await go('/dead-letters');
    await text(at('letter-row'), 'a-letter');
    assert.equal((await at('letter-select').count()) + (await at('letters-requeue').count()), 0);
    await go('/submit');
    assert(await at('submit').isDisabled());
  });
  await step('the server refuses', async () => {
    const calls = [
      ['POST', '/v1/jobs', {source: 's', digest: '', jobs: []}],
      ['POST', '/v1/job-files', {text: 'jobs: []'}],
      ['POST', `/v1/jobs/${asked}/answer`, {approved: true}],
      ['POST', `/v1/jobs/${asked}/cancel`, {}],
      ['POST', `/v1/jobs/${jobs['a-letter'].id}/retry`, {}],
      ['POST', '/v1/dead-letters/requeue', {letters: [{id: jobs['a-letter'].id}]}],
      ['POST', '/v1/dead-letters/drop', {ids: [jobs['a-letter'].id]}],
      ['POST', '/v1/pause', {scope: 'global'}],
      ['POST', '/v1/nodes/spare/cordon', {}],
      ['DELETE', '/v1/nodes/spare', {}],
      ['POST', '/v1/ui-links', {role: 'operate'}],
      ['POST', '/v1/upgrade', {mode: 'drain'}],
    ];
    for (const [method, route, data] of calls) {
      const response = await page.request.fetch(route, {method, data, headers: {Origin: world.url, 'Sec-Fetch-Site': 'same-origin'}});
      assert.equal(response.status(), 403, `${method} ${route}`);
      assert.match(response.headers()['content-type'], /problem\+json/);
    }
  });
}
