// A hundred thousand jobs: the pages stay quick, and the document small.

import assert from 'node:assert/strict';

export async function many({page, context, step, login, go, at, text, args, figure, none, shot}) {
  await page.addInitScript(() => {
    window.__long = [];
    new PerformanceObserver((list) => {
      for (const e of list.getEntries()) window.__long.push(Math.round(e.duration));
    }).observe({type: 'longtask', buffered: true});
  });
  const cdp = await context.newCDPSession(page);
  await cdp.send('Performance.enable');
  const weigh = async (when) => {
    await cdp.send('HeapProfiler.collectGarbage');
    const {metrics} = await cdp.send('Performance.getMetrics');
    const m = Object.fromEntries(metrics.map((x) => [x.name, x.value]));
    const [rows, nodes, long] = await page.evaluate(() => [
      document.querySelectorAll('[data-testid="job-row"]').length,
      document.querySelectorAll('*').length,
      window.__long,
    ]);
    figure(
      `${when}: ${(m.JSHeapUsedSize / 1e6).toFixed(1)} MB of heap, ${rows} rows, ${nodes} elements, longest task ${Math.max(0, ...long)} ms (${long.length} over 50 ms)`,
    );
    return {rows, nodes, longest: Math.max(0, ...long), heap: m.JSHeapUsedSize};
  };
  const timed = async (what, f) => {
    const began = performance.now();
    await step(what, f);
    figure(`${what}: ${Math.round(performance.now() - began)} ms`);
  };
  await timed('overview', () => login());
  await timed('the list', async () => {
    await go('/jobs');
    await text(at('total'), args.total.toLocaleString('en-US'));
    await at('job-row').first().waitFor();
  });
  const first = await weigh('opened');
  assert(first.rows < 200, `${first.rows} rows`);
  await timed('by tenant', async () => {
    await at('filter-tenant').selectOption('tenant-7');
    await text(at('total'), (args.total / 100).toLocaleString('en-US'));
  });
  await timed('by worker and state', async () => {
    await at('filter-tenant').selectOption('');
    await go('/jobs?worker=claude&status=completed');
    await text(at('total'), (args.total / 2).toLocaleString('en-US'));
  });
  await timed('search for one', async () => {
    await go('/jobs');
    const last = `job-${args.total - 3}`; // no other name has it as a part
    await at('search').fill(last);
    await text(at('job-row'), last);
    await text(at('total'), '1 job');
  });
  await timed('search for all', async () => {
    await at('search').fill('PARSER');
    await text(at('total'), args.total.toLocaleString('en-US'));
    await at('search').fill('');
    await text(at('total'), args.total.toLocaleString('en-US'));
  });
  await timed('2,000 rows down', async () => {
    // The list may begin anew meanwhile, since the search was just cleared: it is
    // scrolled until it has come so far.
    let last = 0;
    for (const until = performance.now() + 180_000; last < 2000 && performance.now() < until; ) {
      last = await page.evaluate(async () => {
        window.scrollBy(0, 3000);
        await new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)));
        return Math.max(0, ...[...document.querySelectorAll('[data-testid="job-row"]')].map((r) => Number(r.getAttribute('aria-rowindex'))));
      });
    }
    assert(last >= 2000, `it ends at row ${last}`);
  });
  const deep = await weigh('2,000 rows down');
  assert(deep.rows < 300 && deep.nodes < 5000, `the document has ${deep.rows} rows, ${deep.nodes} elements`);
  await shot('jobs-100000');
  await timed('back to the top', async () => {
    await page.evaluate(() => window.scrollTo(0, 0));
    await page.locator('[data-testid="job-row"][aria-rowindex="2"]').waitFor();
  });
  await timed('timeline', async () => {
    await go('/timeline?span=1h');
    await page.waitForFunction(() => Number(document.querySelector('[data-testid="timeline"]')?.dataset.bars) > 0);
  });
  await timed('overview again', async () => {
    await go('/');
    await at('ended').waitFor();
  });
  await none(at('page-error'));
  const end = await weigh('at the end');
  assert(end.longest < 2000, `a task of ${end.longest} ms`);
  assert(end.heap < 200e6, `${end.heap} bytes of heap`);
}
