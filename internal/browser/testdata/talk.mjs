// Talking with agents: questions and their answers, what is said to them, comments on lines of a diff, and who is told of it.

import assert from 'node:assert/strict';

const messagesOf = async ({page}, id) => (await (await page.request.get(`/v1/jobs/${id}/messages`)).json()).messages;

// questions: what needs a person comes first on the overview, and each answer to a question does what it says.
export async function questions({page, step, login, go, at, text, none, submit, chat, cli, allow}) {
  allow(/status of 409|net::ERR_FAILED/);
  const {asks} = await submit(
    [
      chat('asks', [
        'say I begin',
        'ask run make deploy',
        'ask run make once',
        'ask run make once',
        'ask run npm test',
        'ask run npm test --all',
        'ask run git push',
        'write made.txt first',
        'say the end',
      ]),
    ],
    {tenant: 'talkers'},
  );
  const card = (words) => at('question').filter({hasText: words});
  await login();
  await step('the overview begins with it, and with its last line', async () => {
    await text(card('make deploy'), 'wants to run a command');
    await text(at('running-now'), 'asks');
    await text(at('last-line'), /asks run make deploy|I begin/);
    const order = await page.evaluate(() => [...document.querySelectorAll('[data-testid]')].map((e) => e.dataset.testid).filter((id) => ['needs', 'running-now', 'running'].includes(id)));
    assert.deepEqual(order, ['needs', 'running-now', 'running']);
    await page.waitForFunction(() => /^\(\d+\) Overview/.test(document.title));
    await text(at('approvals-count'), /\d waiting/);
  });
  await step('allow once, on the overview', async () => {
    await card('make deploy').getByTestId('answer-once').click();
    await none(card('make deploy'));
    await card('make once').waitFor();
  });
  await step('for this job, on its page', async () => {
    await go('/jobs/' + asks.id);
    await text(at('log'), 'ask run make deploy: allow');
    await card('make once').getByTestId('answer-job').click();
    await card('npm test').waitFor(); // the same was allowed
    await text(at('log'), 'ask run make once: allow');
    await none(card('make once'));
  });
  await step('always, by the pattern that is shown', async () => {
    await card('npm test').getByTestId('answer-tenant').click();
    await text(at('dialog-always'), 'talkers');
    assert.equal(await at('field-pattern').inputValue(), 'npm test');
    await at('field-pattern').fill('npm test *');
    await at('dialog-confirm').click();
    await card('git push').waitFor();
    await text(at('log'), 'ask run npm test --all: allow');
    assert.match(await cli('grants', 'ls'), /^command +npm test \* +talkers +all jobs/m);
  });
  await step('the keyboard goes on where the answered one was', async () => {
    assert(await page.evaluate(() => document.activeElement !== document.body), 'the focus is lost');
  });
  await step('no, with words', async () => {
    await card('git push').getByTestId('answer-no').click();
    await at('field-text').fill('pushing is ours');
    await at('dialog-confirm').click();
    await text(at('log'), 'ask run git push: deny: pushing is ours');
  });
  await step('the answers are stored with who gave them', async () => {
    await text(at('job-state'), /completed/i);
    const {questions} = await (await page.request.get(`/v1/jobs/${asks.id}/questions`)).json();
    const stored = questions.map((q) => [q.command, q.answer?.decision, q.answer?.scope, q.answer?.text].join());
    // The run may ask the same again before it has heard that it is allowed for good.
    for (const want of ['make deploy,allow,once,', 'make once,allow,job,', 'npm test,allow,tenant,', 'git push,deny,,pushing is ours'])
      assert.equal(stored.filter((s) => s === want).length, 1, stored.join('; '));
    assert.equal(await at('question').count(), 0);
  });
  await step('what is allowed for good answers those that ask the same', async () => {
    const [one, two] = Object.values(await submit(['one', 'two'].map((name) => chat(name, ['ask run make shared', 'wait'])), {tenant: 'talkers'}));
    await go('/');
    await card('make shared').nth(1).waitFor();
    await card('make shared').first().getByTestId('answer-tenant').click();
    await at('dialog-confirm').click();
    await none(card('make shared'));
    await cli('cancel', one.id);
    await cli('cancel', two.id);
  });
  await step('the first answer counts, and a later one is told so', async () => {
    const {late} = await submit([chat('late', ['ask run make late', 'wait'])], {tenant: 'talkers'});
    await go('/jobs/' + late.id);
    await card('make late').waitFor();
    await page.route('**/questions', (route) => route.abort()); // the page does not hear of the other answer
    await cli('answer', late.id, 'no');
    const refused = page.waitForResponse((r) => r.url().endsWith('/questions/1/answer') && r.status() === 409);
    await card('make late').getByTestId('answer-once').click();
    await refused;
    await text(at('question-problem'), /was answered already/);
    await cli('cancel', late.id);
  });
}

// words: questions that want words, a choice, or several values of a schema.
export async function words({page, step, login, go, at, text, submit, chat, none, cli}) {
  const {worded} = await submit([chat('worded', ['ask words which parser?', 'choose red green', 'ask write docs/a.md', 'say done'], {capabilities: ['read']})]);
  await login();
  await go('/jobs/' + worded.id);
  await step('in words, by Enter', async () => {
    await at('question-text').fill('the second');
    await cli('tell', worded.id, 'Take your time');
    await text(at('message'), 'Take your time'); // the page is drawn anew meanwhile
    assert.equal(await page.evaluate(() => document.activeElement.dataset.testid), 'question-text', 'the focus is lost while somebody writes');
    await at('question-text').press('Shift+Enter');
    await at('question-text').pressSequentially('of two');
    await at('question-text').press('Enter');
    await text(at('log'), /which parser.*the second\s+of two/s);
  });
  await step('a choice', async () => {
    await at('answer-choice').filter({hasText: 'green'}).click();
    await text(at('log'), /choose red green.*"green"/s);
  });
  await step('a file', async () => {
    await text(at('question-about'), 'docs/a.md');
    await at('answer-once').click();
    await text(at('job-state'), /completed/i);
    await none(at('question'));
  });
  await step('a form of a schema', async () => {
    const schema = {
      type: 'object',
      required: ['Which colour?', 'which'],
      properties: {'Which colour?': {type: 'string', enum: ['red', 'blue']}, which: {type: 'array', items: {type: 'string', enum: ['a', 'b', 'c']}}, more: {type: 'string', examples: ['x']}},
    };
    const asked = {number: 9, job: worded.id, name: 'worded', tenant: 't', kind: 'words', text: 'Tell me', state: 'open', schema, asked_at: new Date().toISOString(), waits: true};
    await page.route('**/questions', (route) => route.fulfill({json: {questions: [asked]}}));
    let body;
    await page.route('**/questions/9/answer', (route) => {
      body = route.request().postDataJSON();
      return route.fulfill({json: {question: {...asked, state: 'answered'}, note: 'it was given to the agent'}});
    });
    await page.reload();
    await at('answer-words').click();
    await text(at('question-problem'), 'Which colour? is missing');
    await page.getByLabel('blue').check();
    await page.getByLabel('a', {exact: true}).check();
    await page.getByLabel('c', {exact: true}).check();
    await at('answer-words').click();
    await text(at('say-note'), 'It was given to the agent');
    assert.deepEqual(body, {value: {'Which colour?': 'blue', which: ['a', 'c']}});
    await page.unroute('**/questions');
  });
}

// tell: words reach the agent, each once and in order; it is interrupted, and goes on.
export async function tell(t) {
  const {page, step, login, go, at, text, submit, chat, none} = t;
  const {told} = await submit([chat('told', ['wait', 'wait', 'sleep-until-interrupt', 'say and on'])]);
  await login();
  await go('/jobs/' + told.id);
  await text(at('job-state'), /running/i);
  const log = at('log');
  await step('Enter sends, Shift+Enter begins a line', async () => {
    await at('say-text').focus();
    await page.keyboard.type('Leave the docs');
    await page.keyboard.press('Shift+Enter');
    await page.keyboard.type('alone');
    await page.keyboard.press('Enter');
    await text(log, /told: Leave the docs\s+alone/);
    assert.equal(await at('say-text').inputValue(), '');
    await text(log.locator('[data-testid="message"]'), /Leave the docs.*alone/s);
    await log.locator('[data-testid="message"] [data-state="folded"]').first().waitFor();
  });
  await step('by the button', async () => {
    await at('say-text').fill('And the tests too');
    await at('say-send').click();
    await text(log, 'told: And the tests too');
    assert.deepEqual((await messagesOf(t, told.id)).map((m) => m.text), ['Leave the docs\nalone', 'And the tests too']);
  });
  await step('nothing is said by an empty box', async () => {
    await at('say-text').fill('  ');
    await at('say-text').press('Enter');
    assert.equal((await messagesOf(t, told.id)).length, 2);
  });
  await step('interrupt', async () => {
    await at('interrupt').click();
    await text(at('why'), /Waiting for somebody to go on/i);
    await text(at('say-send'), 'Go on');
    await none(at('interrupt'));
  });
  await step('go on', async () => {
    await at('say-text').fill('Now finish');
    await at('say-text').press('Enter');
    await text(at('job-state'), /completed/i);
    await text(log, 'and on');
    assert.equal(await log.getByText('told: Now finish').count(), 1);
    assert.equal(await log.locator('[data-testid="message"]').count(), 3);
  });
}

// resend: an answer that is lost leaves the words where they are; sent again they are not said twice, and a draft survives a reload.
export async function resend(t) {
  const {page, step, login, go, at, text, submit, puppet, file, allow, cli} = t;
  allow(/net::ERR_FAILED/);
  const {deaf} = await submit([puppet('deaf', [{await: file('never-heard')}])]);
  await login();
  await go('/jobs/' + deaf.id);
  await text(at('job-state'), /running/i);
  const ids = [];
  await step('the answer is lost', async () => {
    await page.route('**/messages', async (route) => {
      if (route.request().method() !== 'POST') return route.abort();
      ids.push(route.request().postDataJSON().id);
      await route.fetch();
      await route.abort();
    });
    await at('say-text').fill('Once only');
    await at('say-text').press('Enter');
    await text(at('say-problem'), /not known whether it was said/);
    assert.equal(await at('say-text').inputValue(), 'Once only');
  });
  await step('after a reload it is sent again', async () => {
    await page.unroute('**/messages');
    await page.route('**/messages', (route) => {
      if (route.request().method() === 'POST') ids.push(route.request().postDataJSON().id);
      return route.request().method() === 'POST' ? route.continue() : route.fulfill({json: {messages: []}}); // it does not see it
    });
    await page.reload();
    await page.locator('html[data-ready="true"]').waitFor();
    assert.equal(await at('say-text').inputValue(), 'Once only');
    await at('say-text').press('Enter');
    await text(at('say-note'), /said before/i);
    assert.equal(await at('say-text').inputValue(), '');
    assert.equal(ids.length, 2);
    assert.equal(ids[0], ids[1]);
    assert.equal((await messagesOf(t, deaf.id)).length, 1);
  });
  await step('what waits is shown above the box', async () => {
    await page.unroute('**/messages');
    await page.reload();
    await text(at('say-pending').getByTestId('message'), /Once only/);
    await at('say-pending').locator('[data-state="queued"]').waitFor();
    await at('say-text').fill('Once only');
    await at('say-text').press('Enter');
    await at('say-pending').getByTestId('message').nth(1).waitFor();
    assert.equal(new Set((await messagesOf(t, deaf.id)).map((m) => m.id)).size, 2, 'the same words said anew are another message');
  });
  await cli('cancel', deaf.id);
}

// followUp: on an ended job the box makes another one; a refusal is shown in words.
export async function followUp({page, step, login, go, at, text, submit, puppet, ended, allow}) {
  allow(/status of 409/);
  const {first, second} = await submit([puppet('first', []), puppet('second', [])]);
  await ended(first.id, second.id);
  await login();
  await go('/jobs/' + first.id);
  await text(at('say-send'), 'Follow up');
  await step('a refusal', async () => {
    await page.route('**/messages', (route) =>
      route.request().method() === 'POST'
        ? route.fulfill({status: 409, contentType: 'application/problem+json', json: {title: 'Conflict', status: 409, detail: 'job first has ended'}})
        : route.continue(),
    );
    await at('say-text').fill('And now?');
    await at('say-text').press('Enter');
    await text(at('say-problem'), 'job first has ended');
    assert.equal(await at('say-text').inputValue(), 'And now?');
    await page.unroute('**/messages');
  });
  await step('the page goes to the job that goes on', async () => {
    await page.route('**/messages', (route) =>
      route.request().method() === 'POST'
        ? route.fulfill({json: {message: {number: 1, id: 'x', job: second.id, text: 'And now?', state: 'queued', at: new Date().toISOString()}, note: 'it goes on'}})
        : route.continue(),
    );
    await page.route('**/v1/jobs/' + second.id, async (route) => {
      const answer = await (await route.fetch()).json();
      return route.fulfill({json: {...answer, job: {...answer.job, continues: first.id}}});
    });
    await at('say-send').click();
    await page.waitForFunction((id) => location.hash === '#/jobs/' + id && document.documentElement.dataset.ready === 'true', second.id);
    assert.equal(await at('say-text').inputValue(), '');
  });
  await step('which leads back', async () => {
    await at('continues').getByRole('link').click();
    await page.waitForFunction((id) => location.hash === '#/jobs/' + id, first.id);
    assert.equal(await at('say-text').inputValue(), '', 'what was sent is kept');
  });
}

// comments: on lines of the diff, by mouse and by keyboard; they become one message.
export async function comments(t) {
  const {page, step, login, go, at, text, submit, puppet, none} = t;
  const lines = ['package login', '', 'func Check() bool {', '\treturn true', '}'].join('\n') + '\n';
  const {reviewed} = await submit([
    puppet('reviewed', [{write: 'login.go', text: lines}, {write: 'README.md', text: 'another repository\n'}], {oversight: {mode: 'supervised', max_retries: 2}}),
  ]);
  await login();
  await go('/jobs/' + reviewed.id);
  const file = (name) => at('diff-file').filter({hasText: name});
  await step('with the mouse', async () => {
    await text(file('login.go'), 'return true');
    await file('login.go').locator('tr').filter({hasText: 'return true'}).locator('td.ln').nth(1).click();
    await at('comment-text').fill('Never without');
    await at('comment-text').press('Shift+Enter');
    await page.keyboard.type('a password.');
    await page.keyboard.press('Enter');
    await text(at('comment'), /Never without\s+a password\./);
  });
  await step('with the keyboard', async () => {
    const button = file('README.md').getByTestId('line-comment');
    await button.first().focus();
    await page.keyboard.press('ArrowDown'); // the line that is new
    assert.match(await page.evaluate(() => document.activeElement.getAttribute('aria-label')), /README\.md:1$/);
    await page.keyboard.press('ArrowUp');
    await page.keyboard.press('Enter');
    await page.keyboard.type('Why is it gone?');
    await page.keyboard.press('Enter');
    await at('say-comment').nth(1).waitFor();
    assert.equal(await page.evaluate(() => document.activeElement.dataset.testid), 'line-comment', 'the focus is lost');
  });
  await step('one is changed, another one removed', async () => {
    await file('login.go').locator('tr').filter({hasText: 'package login'}).locator('td.ln').nth(1).click();
    await at('comment-text').fill('Not this one');
    await at('comment-add').click();
    await at('say-comment').nth(2).waitFor();
    await at('say-comment').filter({hasText: 'Not this one'}).getByRole('button', {name: /^Remove/}).click();
    await none(at('comment').filter({hasText: 'Not this one'}));
    await file('README.md').getByTestId('comment-edit').click();
    await at('comment-text').fill('Why is the old line gone?');
    await at('comment-add').click();
    await text(at('say-comment'), 'Why is the old line gone?');
    assert.equal(await at('say-comment').count(), 2);
  });
  await step('they survive a reload', async () => {
    await at('say-text').fill('Two things:');
    await page.reload();
    await at('say-comment').nth(1).waitFor();
    await text(at('comment'), 'Why is the old line gone?');
  });
  await step('and become one message', async () => {
    await at('say-text').press('Enter');
    await none(at('say-comment'));
    await none(at('comment'));
    const all = await messagesOf(t, reviewed.id);
    assert.equal(all.length, 1);
    assert.equal(
      all[0].text,
      'Two things:\n\nREADME.md:1 (removed)\n> a repository\nWhy is the old line gone?\n\nlogin.go:4\n> \treturn true\nNever without\na password.',
    );
    assert.equal(await at('say-text').inputValue(), '');
  });
}

// notify: the browser is asked only by a click, and then told of new questions, in a short clean line.
export async function notify({page, step, login, go, at, submit, chat, cli, open, text}) {
  const stub = () => {
    window.__asked = 0;
    window.__told = [];
    window.Notification = class {
      static permission = 'default';
      static async requestPermission() {
        window.__asked++;
        return (window.Notification.permission = 'granted');
      }
      constructor(title, options) {
        window.__told.push({title, ...options});
      }
      close() {}
    };
    document.hasFocus = () => false; // somebody looks elsewhere
  };
  await page.addInitScript(stub);
  await login();
  const {unseen} = await submit([chat('unseen', ['ask run make unseen', 'wait'])], {tenant: 'bell'});
  await step('nothing is asked, and nothing told, before somebody wants it', async () => {
    await at('question').filter({hasText: 'make unseen'}).waitFor();
    await page.waitForFunction(() => /^\(\d+\)/.test(document.title));
    assert.deepEqual(await page.evaluate(() => [window.__asked, window.__told]), [0, []]);
    assert.equal(await at('notify').getAttribute('aria-pressed'), 'false');
  });
  await step('consent', async () => {
    await at('notify').click();
    await text(at('notify'), 'Notifications on');
    assert.deepEqual(await page.evaluate(() => [window.__asked, window.__told]), [1, []], 'what was there already is told');
  });
  const nasty = 'run <img src=x onerror=alert(1)> \u202egnp.exe\u202c ' + 'y'.repeat(300);
  const {rings} = await submit([chat('rings', ['ask words ' + nasty, 'wait'])], {tenant: 'bell'});
  await step('a new question is told once', async () => {
    await page.waitForFunction((id) => window.__told.some((n) => n.tag.startsWith(id)), rings.id);
    const told = (await page.evaluate(() => window.__told)).filter((n) => n.tag.startsWith(rings.id));
    assert.equal(told.length, 1);
    assert.equal(told[0].title, 'rings asks');
    assert.equal(told[0].tag, rings.id + '/1');
    assert(told[0].body.length <= 80 && told[0].body.startsWith('run <img'), told[0].body);
    assert(!/[\u0000-\u001f\u202a-\u202e]/.test(told[0].body));
    assert.deepEqual(Object.keys(told[0]).sort(), ['body', 'tag', 'title']);
  });
  await step('off again', async () => {
    await at('notify').click();
    await text(at('notify'), 'Notify me');
    assert.equal(await page.evaluate(() => localStorage.getItem('notify')), null);
  });
  await cli('cancel', unseen.id);
  await cli('cancel', rings.id);
}

// longTalk: of a long conversation the document holds the end; what was before comes when it is asked for.
export async function longTalk({page, step, login, go, at, text, submit, puppet, ended, figure}) {
  const {chatty} = await submit([puppet('chatty', [{times: 6000, line: {type: 'text', text: 'line # of many'}}])]);
  await ended(chatty.id);
  await login();
  await go('/jobs/' + chatty.id);
  const lines = () => page.evaluate(() => document.querySelectorAll('[data-testid="log"] [data-kind="text"]').length);
  await step('its end is here', async () => {
    await text(at('log'), 'line 6000 of many');
    await text(at('job-state'), /completed/i);
    const n = await lines();
    figure(`${n} of 6,000 lines are in the document`);
    assert(n >= 1000 && n <= 2300, `${n} lines`);
    await text(at('instructions'), 'line # of many'); // what was asked is always there
  });
  await step('what was before comes by clicks, all of it in its order', async () => {
    const want = []; // not all 6,000: what a program says faster than anybody reads is dropped
    for (let after = 0; ; ) {
      const {events} = await (await page.request.get(`/v1/jobs/${chatty.id}/events?limit=1000&after=${after}`)).json();
      if (!events.length) break;
      after = events.at(-1).cursor;
      want.push(...events.filter((e) => e.kind === 'text').map((e) => e.text));
    }
    const there = () => page.evaluate(() => [...document.querySelectorAll('[data-testid="log"] [data-kind="text"] .ev-body')].map((e) => e.textContent));
    assert.deepEqual(await there(), want.slice(-(await lines())));
    while (await at('log-older').isVisible()) {
      const before = await lines();
      await at('log-older').click();
      await page.waitForFunction((n) => document.querySelectorAll('[data-testid="log"] [data-kind="text"]').length > n, before);
    }
    assert.deepEqual(await there(), want);
  });
}

// brokenStream: a connection that breaks is picked up where it was: nothing is missing, nothing there twice. First the page lets go of
// it, then the scheduler is killed.
export async function brokenStream({page, step, login, go, at, text, submit, puppet, file, release, allow, ask, patience}) {
  allow(/net::ERR_/);
  const gates = [file('broken-1'), file('broken-2')];
  const part = (words, more) => ({...more, times: 5, line: {type: 'text', text: `line # of ${words}`}});
  const {cut} = await submit([
    puppet('cut', [
      part('before', {only: 1}),
      {await: gates[0]},
      part('meanwhile', {only: 1}),
      {only: 1, await: gates[1]},
      part('after', {only: 2}),
    ]),
  ]);
  await login();
  await go('/jobs/' + cut.id);
  await text(at('log'), 'line 5 of before');
  await step('the page lets go, and things go on', async () => {
    await page.evaluate(() => window.dispatchEvent(new Event('pagehide')));
    await page.locator('html[data-connection="paused"]').waitFor();
    release(gates[0]);
    for (let found = [], until = performance.now() + patience; found.length < 10; assert(performance.now() < until, `${found.length} lines`))
      found = (await (await page.request.get(`/v1/jobs/${cut.id}/events`)).json()).events.filter((e) => e.kind === 'text');
    assert.equal(await at('log-event').filter({hasText: 'of meanwhile'}).count(), 0);
  });
  await step('it is back', async () => {
    await page.evaluate(() => window.dispatchEvent(new Event('pageshow')));
    await text(at('log'), 'line 5 of meanwhile');
  });
  await step('the scheduler is killed, and comes back', async () => {
    await ask('kill');
    await page.locator('html[data-connection="reconnecting"]').waitFor();
    await ask('start');
    await text(at('log'), 'line 5 of after');
    await text(at('job-state'), /completed/i);
    const said = await page.evaluate(() => [...document.querySelectorAll('[data-testid="log"] [data-kind="text"] .ev-body')].map((e) => e.textContent));
    const want = ['before', 'meanwhile', 'after'].flatMap((words) => [1, 2, 3, 4, 5].map((n) => `line ${n} of ${words}`));
    assert.deepEqual(said, want);
    assert.equal(await at('log').getByText('Attempt 2', {exact: true}).count(), 1);
  });
}

// reader: who may only read sees the conversation, and nothing that would be refused.
export async function reader({page, step, login, go, at, text, submit, chat, cli, world}) {
  const {seen} = await submit([chat('seen', ['ask run make seen', 'wait'])]);
  await login('read');
  await step('the overview', async () => {
    await text(at('question').filter({hasText: 'make seen'}), 'An answer needs the role operate');
    assert.equal(await page.locator('[data-testid^="answer-"]').count(), 0);
  });
  await step('the page of the job', async () => {
    await go('/jobs/' + seen.id);
    await text(at('question'), 'make seen');
    assert.equal(await page.locator('[data-testid^="answer-"], [data-testid="say-text"], [data-testid="interrupt"], [data-testid="line-comment"]').count(), 0);
  });
  await step('the server refuses', async () => {
    for (const route of ['messages', 'interrupt', 'questions/1/answer']) {
      const response = await page.request.fetch(`/v1/jobs/${seen.id}/${route}`, {method: 'POST', data: {}, headers: {Origin: world.url, 'Sec-Fetch-Site': 'same-origin'}});
      assert.equal(response.status(), 403, route);
    }
  });
  await cli('cancel', seen.id);
}
