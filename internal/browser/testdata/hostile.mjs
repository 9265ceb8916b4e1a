// What a hostile prompt, worker, file or person says is shown and never obeyed.

import assert from 'node:assert/strict';

const LONG = 'W'.repeat(100000);

// clean looks at a page: nothing of the payload ran, or became markup.
async function clean(page, where) {
  const found = await page.evaluate(() => ({
    ran: window.__xss,
    markup: [...document.querySelectorAll('#page img, #page script, #page iframe, #page object, #page [onerror], #page [onload], #page [onmouseover], #page [onfocus]')].map((e) => e.outerHTML.slice(0, 200)),
    links: [...document.querySelectorAll('a[href], form[action]')].map((e) => e.getAttribute('href') || e.getAttribute('action')).filter((a) => !/^(#|\/|http:\/\/127\.0\.0\.1)/.test(a)),
    controls: [...document.querySelectorAll('body *')]
      .filter((e) => [...e.childNodes].some((n) => n.nodeType === Node.TEXT_NODE && /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/.test(n.data)))
      .map((e) => `${e.parentElement.tagName}.${e.parentElement.className} > ${e.tagName}.${e.className}`),
    title: /[\u0000-\u001f\u202a-\u202e]/.test(document.title),
    width: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  }));
  assert.deepEqual(found, {ran: undefined, markup: [], links: [], controls: [], title: false, width: 0}, where);
}

// unfold opens all that is folded on a page.
const unfold = (page) =>
  page.evaluate(() => {
    for (const d of document.querySelectorAll('details')) d.open = true;
  });

// hostileSubmit: what is typed into the form, and what is said about it.
export async function hostileSubmit({page, step, login, go, at, text, args, allow}) {
  allow(/status of 400|status of 422/);
  await login();
  await step('in each field', async () => {
    await go('/submit');
    await at('field-worker').selectOption('puppet');
    await page.locator('details').evaluateAll((all) => all.forEach((d) => (d.open = true)));
    for (const name of ['instructions', 'id', 'workspace_path', 'tenant', 'model', 'workspace_base', 'verify', 'limits_timeout'])
      await at('field-' + name).evaluate((el, v) => {
        el.removeAttribute('maxlength');
        el.value = v;
        el.dispatchEvent(new Event('input', {bubbles: true}));
      }, args.payload);
    await at('submit').click();
    await page.locator('.field-problem:not(:empty)').first().waitFor();
    await text(page.locator('#page'), 'payload');
    await clean(page, 'the form');
  });
  await step('in a job file', async () => {
    await at('tab-file').click();
    await at('field-text').fill(JSON.stringify({tenant: args.payload, jobs: [{id: args.payload, worker: args.payload, [args.payload]: 1}]}));
    await at('field-name').fill(args.payload);
    await at('submit').click();
    await page.locator('.field-problem:not(:empty)').first().waitFor();
    await clean(page, 'the job file');
  });
  await step('in the search and in the address', async () => {
    const q = encodeURIComponent(args.payload);
    for (const address of [`/jobs?q=${q}&tenant=${q}&worker=${q}&status=${q}`, `/dead-letters?grep=nothing&tenant=${q}&worker=${q}&class=${q}`, `/agents?kind=${q}&subject=${q}&domain=${q}`, `/timeline?span=${q}&until=${q}`]) {
      await page.goto('/#' + address);
      await page.locator('html[data-ready="true"]').waitFor();
      await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
      await clean(page, address.slice(0, 20));
    }
    allow(/status of 404/);
    for (const address of [`/jobs/${q}`, `/workflows/${q}`, `/pipelines/${q}`, `/${q}`]) {
      await page.goto('/#' + address);
      await page.locator('html[data-ready="true"]').waitFor();
      await clean(page, address.slice(0, 20));
    }
  });
  }

// hostilePages: what jobs, workers, agents, people and files say, on each page.
export async function hostilePages(t) {
  const {page, step, login, go, at, text, args, submit, puppet, chat, ended, cli, figure, job, shot} = t;
  const P = args.payload;
  const name = P.replaceAll('/', '|').slice(0, 200); // of a file
  const acts = [
    {line: {type: 'hello', protocol: 1, name: P, version: P}},
    {line: {type: 'session', session: P}},
    {line: {type: 'text', text: P}},
    {line: {type: 'text', text: LONG}},
    {line: {type: 'log', text: P}},
    {line: {type: 'warning', text: P}},
    {line: {type: 'command', phase: 'start', id: P, command: P}},
    {line: {type: 'command', phase: 'end', id: P, exit_code: 1, ms: 1, output: P}},
    {line: {type: 'file', path: P, change: P}},
    {line: {type: 'step', step: 'payload <img src=x onerror=window.__xss=10>', inputs: P, result: P}},
    {write: name, text: P + '\n'},
    {write: 'README.md', text: `${P}\n${LONG}\n`},
  ];
  const result = (more) => ({line: {type: 'result', status: 'completed', answer: P, ...more}});
  const agents = [{name: 'writer', worker: 'puppet', system_prompt: P, domains: ['legal'], output: {type: 'object', description: P}}];
  const jobs = await step('plant', async () => {
    const all = {
      ...(await submit([
        puppet('says', [...acts, result({})], {instructions: JSON.stringify([...acts, result({})]) + '\n' + P, model: P.slice(0, 240), system_prompt: P, trace: P.replace(/[^ -~]/g, '').slice(-240), key: 'payload <img src=x onerror=window.__xss=11>'}),
        puppet('fails', [...acts, {line: {type: 'result', status: 'failed', class: 'CONFIG', message: P, hint: P}}]),
        puppet('asks', [...acts, {line: {type: 'result', status: 'completed', answer: JSON.stringify({ask: P, needs_approval: true})}}], {oversight: {mode: 'autonomous_escalation'}}),
        chat('talks', [`say ${P}`, `ask words ${P}`].map((line) => line.replaceAll('\n', ' ')), {ask: {for: ['commands', 'words'], wait: '1h'}}),
        chat('commands', [`ask run ${P.replace(/[\u0000-\u001f\u200b\u202a-\u202e\u2066-\u2069\ufeff]/g, '')}`], {ask: {for: ['commands', 'words'], wait: '1h'}}),
        puppet('checked', [result({})], {verify: `echo '${P.replaceAll("'", '')}'; exit 1`, limits: {max_attempts: 1}}),
      ]).catch((error) => {
        throw new Error('submit: ' + error.message.slice(0, 2000));
      })),
      ...(await submit(
        [
          puppet('needs-1', [result({})], {input: {[P]: P}}),
          puppet('needs-2', [result({})], {needs: 'needs-1', for_each: [P, LONG.slice(0, 1000)]}),
          puppet('judged', [result({})], {worker: undefined, agent: 'writer', evaluation: {domain: 'legal'}}),
        ],
        {tenant: 'workflow', agents},
      )),
    };
    const events = JSON.stringify({events: [{type: 'word', data: {[P]: P, long: LONG.slice(0, 2000)}}]}).replaceAll("'", '');
    await submit(
      [
        {id: 'split', worker: 'shell', instructions: `cat <<'END_OF_IT'\n${events}\nEND_OF_IT`, input: [{[P]: P}]},
        {id: 'count', worker: 'shell', instructions: `echo '${P.replaceAll("'", '')}' >&2; exit 3`, limits: {max_attempts: 1}},
      ],
      {tenant: 'stream', pipelines: [{id: 'words', stages: [{job: 'split', publishes: ['word']}, {job: 'count', subscribes: ['word']}]}]},
    );
    await ended(all.says.id, all.fails.id, all.checked.id, all['needs-2'].id, all.judged.id);
    await cli('tell', all.talks.id, P);
    for (let n = 0; n < 400 && (JSON.parse(await cli('show', '--json', all.commands.id)).job.status.state !== 'waiting_approval'); n++);
    await cli('evaluate', all.judged.id, '--quality', '0.5', '--by', 'anna', '-m', P);
    for (let n = 0; n < 200 && (await job(all.asks.id)).job.held !== 'approval'; n++);
    return all;
  });
  await login();
  await step('reject with it', async () => {
    await go('/jobs/' + jobs.asks.id);
    await at('action-reject').click();
    await at('field-comment').fill(P);
    await at('dialog-confirm').click();
    await text(at('instructions'), 'Feedback');
    await clean(page, 'rejected');
  });
  await step('pause with it', async () => {
    await go('/');
    await at('pause').click();
    await at('field-reason').fill(P);
    await at('dialog-confirm').click();
    await text(at('isolations'), 'payload');
    await clean(page, 'paused');
    await at('resume').click();
  });
  const jobPages = [...Object.values(jobs).map((e) => e.id), ...args.planted];
  const pages = [
    ['/', 'payload'],
    ['/jobs', 'payload'],
    ['/approvals', 'payload'],
    ['/dead-letters', 'payload'],
    ['/workflows', ''],
    ['/workflows/' + jobs['needs-1'].batch, ''],
    ['/pipelines', ''],
    ['/pipelines/words', 'payload'],
    ['/timeline', ''],
    ['/agents', 'payload'],
    ...jobPages.map((id) => ['/jobs/' + id, 'payload']),
  ];
  for (const [n, [address, words]] of pages.entries()) {
    await step(address, async () => {
      await go(address);
      if (words) await text(page.locator('#page'), words);
      await unfold(page);
      await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
      for (const filter of await page.getByTestId('log-filter').all()) await filter.selectOption('all');
      for (const summary of await page.locator('[data-testid="timeline-table"] summary').all()) await summary.scrollIntoViewIfNeeded();
      await clean(page, address);
      await shot(`hostile-${n}`);
    });
  }
  await step('what an agent asks, and what is answered and said to it', async () => {
    await go('/jobs/' + jobs.commands.id);
    await text(at('question-about'), '<img src=x onerror="window.__xss=1">');
    await at('answer-tenant').click();
    assert.match(await at('field-pattern').inputValue(), /^payload <img/);
    assert(!/[\u202a-\u202e\u200b]/.test(await at('field-pattern').inputValue()));
    await clean(page, 'always');
    await at('dialog-cancel').click();
    await at('answer-no').click();
    await at('field-text').fill(P);
    await at('dialog-confirm').click();
    await text(at('job-state'), /completed/i);
    await clean(page, 'denied');
    await go('/jobs/' + jobs.talks.id);
    await at('question-text').fill(P);
    await at('question-text').press('Enter');
    await text(at('job-state'), /completed/i);
    await text(at('message'), '<img src=x onerror="window.__xss=1">');
    await at('say-text').fill(P);
    await clean(page, 'told');
  });
  await step('comments on such lines', async () => {
    await go('/jobs/' + jobs.asks.id);
    await at('line-comment').first().evaluate((el) => el.click());
    await at('comment-text').fill(P);
    await at('comment-add').click();
    await at('say-comment').waitFor();
    await clean(page, 'commented');
    await page.reload();
    await at('comment').waitFor();
    await clean(page, 'commented, after a reload');
  });
  await step('a patch of files with such names and lines', async () => {
    await go('/jobs/' + jobs.says.id);
    await text(at('diff-file'), 'payload <img src=x onerror="window.__xss=1">');
    await text(at('diff-file').filter({hasText: 'README.md'}).locator('tr.add'), 'payload <img');
    await clean(page, 'the files');
  });
  await step('the planted patch, line by line', async () => {
    await go('/jobs/' + args.planted[0]);
    await at('diff-file').first().waitFor();
    await text(at('diff'), '<img src=x onerror="window.__xss=1">');
    await text(at('diff'), '\u27e8001B\u27e9]0;title\u27e80007\u27e9'); // code hides nothing
    await text(at('log'), '<img src=x onerror="window.__xss=1">');
    await text(at('why'), '<img src=x onerror="window.__xss=1">');
    await clean(page, 'the patch');
  });
  figure(`${pages.length} pages with the payload`);
}
