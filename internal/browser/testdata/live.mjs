// What goes on by itself: the log of a running job, and coming back after the
// scheduler was away.

import assert from 'node:assert/strict';

// followLog: the log of a running job goes on at its end; a reader who scrolls up is
// left in peace; what a tool was given and said is folded.
export async function followLog({page, step, login, go, at, text, submit, puppet, file, release}) {
  await login();
  const gates = [1, 2, 3].map((n) => file('log-' + n));
  const talk = (times, words) => ({times, line: {type: 'text', text: words}});
  const {talker} = await submit([
    puppet('talker', [
      {line: {type: 'command', phase: 'start', id: '1', command: 'make all'}},
      {line: {type: 'command', phase: 'end', id: '1', exit_code: 2, ms: 1500, output: 'the output of make'}},
      talk(120, 'line # of the first part'),
      {await: gates[0]},
      talk(50, 'line # of the second part'),
      {await: gates[1]},
      talk(50, 'line # of the third part'),
      {line: {type: 'usage', input_tokens: 1200, output_tokens: 34, cost_usd: 0.25}},
      {await: gates[2]},
      talk(1, 'line # and no more'),
    ]),
  ]);
  const log = at('log');
  const atEnd = () =>
    page.waitForFunction(() => {
      const el = document.querySelector('[data-testid="log"]');
      return el.scrollHeight - el.clientHeight - el.scrollTop < 5;
    });
  const place = () => log.evaluate((el) => ({top: el.scrollTop}));
  await go('/jobs/' + talker.id);
  await step('a call is folded', async () => {
    const call = log.locator('[data-kind="command"]').filter({hasText: 'make all'});
    await text(call, 'exit 2');
    assert.equal(await call.getByText('the output of make').count(), 0, 'its output is not folded');
    await log.evaluate((el) => (el.scrollTop = 0));
    await call.locator('summary').click();
    await call.getByText('the output of make').waitFor();
    await call.locator('summary').click();
    await call.getByText('the output of make').waitFor({state: 'hidden'});
  });
  await step('it follows', async () => {
    if (await at('log-follow').isVisible()) await at('log-follow').click();
    await text(log, 'line 120 of the first part');
    release(gates[0]);
    await text(log, 'line 50 of the second part');
    await atEnd();
  });
  await step('scrolled up, it stays', async () => {
    await log.hover();
    await page.mouse.wheel(0, -600);
    await at('log-follow').waitFor();
    await page.waitForFunction(
      (el) => {
        const same = el.dataset.was === String(el.scrollTop); // the wheel's movement is over
        el.dataset.was = String(el.scrollTop);
        return same;
      },
      await log.elementHandle(),
      {polling: 150},
    );
    const before = await place();
    release(gates[1]);
    await text(at('log-follow'), /new/);
    await text(log, 'line 50 of the third part');
    assert.equal((await place()).top, before.top);
  });
  await step('time goes on between events', async () => {
    await text(at('log-heard'), /last event (now|\d+ s ago)/);
    await text(at('job-clock'), /for \d/);
    const was = await at('job-clock').textContent();
    await page.waitForFunction((text) => document.querySelector('[data-testid="job-clock"]').textContent !== text, was);
  });
  await step('the conversation comes first, with what was asked in it; ids are at the side and folded', async () => {
    const order = ['job-state', 'log', 'instructions', 'say', 'usage', 'ids', 'attempts'];
    const there = await page.evaluate((all) => [...document.querySelectorAll('[data-testid]')].map((e) => e.dataset.testid).filter((id) => all.includes(id)), order);
    assert.deepEqual(there, order);
    assert.equal(await page.getByText(talker.id).isVisible(), false);
    await at('ids').locator('summary').click();
    await text(at('ids'), talker.id);
  });
  await step('tokens and cost go along', () => text(at('usage'), '$0.25'));
  await step('back to the end', async () => {
    await at('log-follow').click();
    await atEnd();
    release(gates[2]);
    await text(log, 'line 1 and no more');
    await text(at('job-state'), /completed/i);
    await atEnd();
  });
  await step('show what it does alone', async () => {
    await at('log-filter').selectOption('actions');
    await log.getByText('line 1 and no more').waitFor({state: 'hidden'});
    await log.getByText('$ make all').waitFor();
  });
}

// reconnect: the daemon is killed and comes back; the page says so and goes on, without
// a reload, signed in, and misses nothing.
export async function reconnect({page, step, login, go, at, text, submit, puppet, ask, allow, figure, none}) {
  allow(/net::ERR_/);
  await login();
  const {before} = await submit([puppet('before', [])]);
  await go('/jobs');
  await page.locator(`[data-testid="job-row"][data-key="${before.id}"][data-state="completed"]`).waitFor();
  await page.evaluate(() => (window.__loaded = 'once'));
  await step('killed', async () => {
    await ask('kill');
    await page.locator('html[data-connection="reconnecting"]').waitFor();
    await text(at('connection'), /reconnecting/i);
    assert(await page.locator('#away').isVisible());
    await at('job-row').first().waitFor(); // what was there stays
  });
  const began = performance.now();
  await step('back', async () => {
    await ask('start');
    const up = performance.now();
    await page.locator('html[data-connection="live"]').waitFor();
    figure(`live again ${Math.round(performance.now() - up)} ms after the daemon was ready, ${Math.round(performance.now() - began)} ms after its start`);
    await none(page.locator('#away'));
  });
  await step('what is submitted then appears', async () => {
    const {after} = await submit([puppet('after', [])]);
    await at('new-jobs').or(page.locator(`[data-testid="job-row"][data-key="${after.id}"]`)).first().waitFor();
    if (await at('new-jobs').isVisible()) await at('new-jobs').click();
    await page.locator(`[data-testid="job-row"][data-key="${after.id}"][data-state="completed"]`).waitFor();
  });
  await step('without a reload, still signed in', async () => {
    assert.equal(await page.evaluate(() => window.__loaded), 'once');
    await go('/');
    await at('running').waitFor();
    assert.equal(await at('unauthorized').count(), 0);
  });
  await step('the log of a job that the kill cut goes on', async () => {
    await ask('kill');
    await ask('start');
    await page.locator('html[data-connection="live"]').waitFor();
    await go('/jobs/' + before.id);
    await text(at('job-state'), /completed/i);
  });
}
