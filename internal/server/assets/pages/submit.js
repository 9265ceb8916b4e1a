// Submit a job by filling in a form, or a whole job file.

import {h, replace, append, field, badge, toast, visible, plural, link} from '../dom.js';

const isolations = [
  ['worktree', 'Git worktree: a branch of its own'],
  ['copy', 'Copy of the folder'],
  ['direct', 'The folder itself: it changes your files'],
  ['none', 'None: an empty folder'],
];
const capabilities = [
  ['read', 'Read files'],
  ['edit', 'Change files'],
  ['run_commands', 'Run any command'],
  ['run_tests', 'Run tests'],
  ['network', 'Use the network'],
];

export const page = {
  title: 'Submit',
  path: '/submit',
  nav: 'submit',
  async mount(root, ctx) {
    const workers = (await ctx.api.get('/v1/workers', {signal: ctx.signal})).workers || [];
    const body = h('div', {role: 'tabpanel', id: 'submit-panel'});
    const forms = {one: () => oneForm(ctx, workers), file: () => fileForm(ctx)};
    const made = {};
    const tabs = [
      ['one', 'One job'],
      ['file', 'Job file'],
    ].map(([name, title]) =>
      h(
        'button',
        {
          type: 'button',
          role: 'tab',
          id: 'tab-' + name,
          'data-testid': 'tab-' + name,
          'aria-controls': 'submit-panel',
          onclick: () => choose(name),
        },
        title,
      ),
    );
    function choose(name) {
      tabs.forEach((t) => {
        t.setAttribute('aria-selected', String(t.id === 'tab-' + name));
        t.tabIndex = t.id === 'tab-' + name ? 0 : -1;
      });
      body.setAttribute('aria-labelledby', 'tab-' + name);
      replace(body, (made[name] ||= forms[name]()));
      ctx.setQuery(name === 'one' ? {} : {form: name});
    }
    const bar = h(
      'div',
      {
        class: 'tabs',
        role: 'tablist',
        'aria-label': 'How',
        onkeydown: (e) => {
          if (e.key !== 'ArrowRight' && e.key !== 'ArrowLeft') return;
          const other = tabs.find((t) => t.getAttribute('aria-selected') !== 'true');
          choose(other.id.slice(4));
          other.focus();
        },
      },
      tabs,
    );
    replace(
      root,
      h('div', {class: 'page-head'}, h('h1', {tabindex: '-1'}, 'Submit')),
      ctx.can('submit') ? null : h('p', {class: 'notice tone-ask'}, 'Your role may read only; submitting needs the role submit.'),
      bar,
      body,
    );
    choose(ctx.query.form === 'file' ? 'file' : 'one');
  },
};

// Form shows problems beside the fields that they are about, and sends with one
// Idempotency-Key until it has succeeded: a second press, or a try after the line
// was cut, makes no second job.
class Form {
  constructor(ctx, {label, send, done}) {
    Object.assign(this, {ctx, send, done, inputs: new Map()});
    this.renew();
    this.problem = h('p', {class: 'field-problem', role: 'alert', 'data-testid': 'form-problem'});
    this.button = h('button', {type: 'submit', class: 'primary', 'data-testid': 'submit', disabled: !ctx.can('submit')}, label);
    this.el = h('form', {
      class: 'form panel',
      novalidate: true,
      'data-testid': 'submit-form',
      onsubmit: (e) => this.submit(e),
      oninput: (e) => this.clear(e.target.name),
    });
  }

  // renew begins another submission: its key, and the name of a job that is given none.
  renew() {
    this.key = newKey();
    this.made = 'job-' + this.key.slice(0, 8);
    this.sent = '';
  }

  field(f) {
    const el = field(f, 'f-' + f.name, this.inputs);
    el.querySelector('.field-problem').dataset.testid = 'problem-' + f.name;
    return el;
  }

  value(name) {
    const el = this.inputs.get(name);
    return el.type === 'checkbox' ? el.checked : el.value.trim();
  }

  async submit(event) {
    event.preventDefault();
    if (this.busy) return;
    this.clear();
    const body = this.send();
    if (!body) return;
    const text = JSON.stringify(body.body);
    if (this.sent && this.sent !== text) this.key = newKey(); // another request than the one that failed
    this.sent = text;
    this.busy = this.button.disabled = true;
    try {
      const answer = await this.ctx.api.post(body.route, body.body, {headers: {'Idempotency-Key': this.key}});
      this.renew();
      this.done(answer);
    } catch (error) {
      this.show(error);
    } finally {
      this.busy = false;
      this.button.disabled = !this.ctx.can('submit');
    }
  }

  // refuse shows a problem with a field, and goes there.
  refuse(name, message) {
    const el = this.inputs.get(name);
    const at = document.getElementById(el?.id + '-problem');
    if (!at) return false;
    at.textContent = [at.textContent, visible(message)].filter(Boolean).join('\n');
    el.setAttribute('aria-invalid', 'true');
    el.setAttribute('aria-errormessage', at.id);
    const fold = el.closest('details');
    if (fold) fold.open = true;
    if (this.clean) {
      el.focus();
      this.clean = false;
    }
    return true;
  }

  show(error) {
    this.clean = true;
    const rest = [];
    for (const e of error.errors || []) {
      const place = String(e.location || '')
        .replace(/^body\.?/, '')
        .replace(/^jobs\[\d+\]\.?/, '');
      const name = place.replace(/\[\d+\].*$/, '').split('.');
      const fits = [name.join('_'), name.slice(-1)[0], name[0]].find((n) => n && this.inputs.has(n));
      if (!fits || !this.refuse(fits, e.message)) rest.push((e.location ? e.location + ': ' : '') + e.message);
    }
    if (!(error.errors || []).length || rest.length)
      this.problem.textContent = visible([error.errors?.length ? error.title : error.detail || error.message, ...rest].join('\n'));
    if (this.clean) this.button.focus();
  }

  clear(name) {
    this.problem.textContent = '';
    this.clean = true;
    for (const [n, el] of this.inputs) {
      if (name && n !== name) continue;
      el.removeAttribute('aria-invalid');
      el.removeAttribute('aria-errormessage');
      const at = document.getElementById(el.id + '-problem');
      if (at) at.textContent = '';
    }
  }
}

// newKey returns a key that nobody else has; crypto.randomUUID is only there on pages
// of HTTPS and of loopback.
function newKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((b) => b.toString(16).padStart(2, '0')).join('');
}

function oneForm(ctx, workers) {
  const able = workers.filter((w) => !w.problem);
  const form = new Form(ctx, {
    label: 'Submit',
    done: (answer) => {
      const job = answer.jobs?.[0];
      toast((job?.spec?.id || 'The job') + ' was submitted.');
      ctx.navigate(job ? link`/jobs/${job.id}` : '/jobs');
    },
    send: () => {
      form.clean = true;
      if (!form.value('instructions')) {
        form.refuse('instructions', 'Say what the worker should do.');
        return null;
      }
      const isolation = form.value('workspace_isolation');
      if (isolation !== 'none' && !form.value('workspace_path')) {
        form.refuse('workspace_path', 'Name a folder on the scheduler\u2019s host, or choose the isolation \u201cnone\u201d.');
        return null;
      }
      const number = (name) => (form.value(name) === '' ? undefined : Number(form.value(name)));
      const worker = form.value('worker');
      const spec = {
        id: form.value('id') || form.made,
        tenant: form.value('tenant') || 'default',
        type: 'WORKER_TASK',
        worker,
        model: form.value('model') || undefined,
        workspace: {
          path: isolation === 'none' ? undefined : form.value('workspace_path'),
          isolation,
          base: isolation === 'worktree' ? form.value('workspace_base') || undefined : undefined,
        },
        instructions: form.inputs.get('instructions').value,
        capabilities: capabilities.map(([c]) => c).filter((c) => form.inputs.get('can_' + c).checked),
        priority: number('priority') || undefined,
        class: form.value('class') || undefined,
        verify: form.value('verify') || undefined,
        limits: {
          timeout: form.value('limits_timeout') || undefined,
          max_attempts: number('limits_max_attempts'),
          max_cost_usd: number('limits_max_cost_usd'),
        },
      };
      return {route: '/v1/jobs', body: {source: 'dashboard', digest: '', jobs: [spec]}};
    },
  });
  const say = h('p', {class: 'hint', role: 'status'});
  const worker = form.field({
    name: 'worker',
    label: 'Worker',
    type: 'select',
    value: able[0]?.kind,
    required: true,
    options: workers.map((w) => [w.kind, w.kind + (w.problem ? ' (cannot run)' : '')]),
    props: {onchange: about},
  });
  append(worker, say);
  function about() {
    const w = workers.find((x) => x.kind === form.value('worker'));
    replace(
      say,
      w
        ? [
            w.problem
              ? [badge('cannot run', {tone: 'bad'}), ' ', visible(w.problem)]
              : visible([w.program || w.adapter, w.model].filter(Boolean).join(', ')),
            (w.circuits || []).some((c) => c.state === 'open') ? [' ', badge('open', {label: 'breaker open'})] : null,
          ]
        : null,
    );
  }
  about();
  const checks = capabilities.map(([c, label]) =>
    form.field({name: 'can_' + c, label, type: 'checkbox', value: ['read', 'edit', 'run_commands'].includes(c)}),
  );
  const caps = h('fieldset', null, h('legend', null, 'What it may do'), h('div', {class: 'checks'}, checks));
  return append(
    form.el,
    h(
      'div',
      {class: 'form-row'},
      worker,
      form.field({
        name: 'id',
        label: 'Name',
        placeholder: 'fix-login',
        hint: 'Also of its git branch. Empty: a generated name.',
        props: {maxlength: '64', spellcheck: 'false'},
      }),
    ),
    form.field({
      name: 'instructions',
      label: 'Instructions',
      type: 'textarea',
      rows: 9,
      required: true,
      hint: 'What to do; for the shell worker, the commands.',
    }),
    h(
      'div',
      {class: 'form-row'},
      form.field({
        name: 'workspace_path',
        label: 'Workspace folder',
        placeholder: '/home/ann/shop',
        hint: 'An absolute path on the scheduler\u2019s host.',
        props: {spellcheck: 'false'},
      }),
      form.field({name: 'workspace_isolation', label: 'Isolation', type: 'select', value: 'worktree', options: isolations}),
    ),
    h(
      'div',
      {class: 'form-row'},
      form.field({name: 'tenant', label: 'Tenant', placeholder: 'default', props: {spellcheck: 'false'}}),
      form.field({
        name: 'priority',
        label: 'Priority',
        type: 'number',
        placeholder: '0',
        hint: 'Higher is sooner, among the tenant\u2019s jobs.',
        props: {step: '1'},
      }),
    ),
    caps,
    h(
      'details',
      null,
      h('summary', null, 'More'),
      h(
        'div',
        {class: 'form-more'},
        h(
          'div',
          {class: 'form-row'},
          form.field({name: 'model', label: 'Model', hint: 'As the worker names it. Empty: its default.', props: {spellcheck: 'false'}}),
          form.field({
            name: 'workspace_base',
            label: 'Base',
            placeholder: 'HEAD',
            hint: 'Commit, branch or tag that a worktree starts from.',
            props: {spellcheck: 'false'},
          }),
        ),
        form.field({
          name: 'verify',
          label: 'Verify',
          placeholder: 'go test ./...',
          hint: 'A shell command that must exit 0 afterwards.',
          props: {spellcheck: 'false'},
        }),
        h(
          'div',
          {class: 'form-row'},
          form.field({name: 'limits_timeout', label: 'Timeout of an attempt', placeholder: '30m'}),
          form.field({
            name: 'limits_max_attempts',
            label: 'Attempts at most',
            type: 'number',
            placeholder: '3',
            props: {min: '1', step: '1'},
          }),
          form.field({name: 'limits_max_cost_usd', label: 'Cost at most, US dollars', type: 'number', props: {min: '0', step: '0.01'}}),
          form.field({
            name: 'class',
            label: 'How patient you are',
            type: 'select',
            value: '',
            options: [
              ['', 'Standard'],
              ['interactive', 'Interactive: a person waits'],
              ['batch', 'Batch: it can wait'],
            ],
          }),
        ),
      ),
    ),
    form.problem,
    h('div', {class: 'form-actions'}, form.button),
  );
}

function fileForm(ctx) {
  const form = new Form(ctx, {
    label: 'Submit the file',
    done: (answer) => {
      const jobs = answer.jobs || [];
      toast(plural(jobs.length, 'job was', 'jobs were') + ' submitted.');
      ctx.navigate(jobs.length === 1 ? link`/jobs/${jobs[0].id}` : jobs[0]?.batch ? link`/workflows/${jobs[0].batch}` : '/jobs');
    },
    send: () => {
      form.clean = true;
      if (!form.value('text')) {
        form.refuse('text', 'Paste a job file.');
        return null;
      }
      return {
        route: '/v1/job-files',
        body: {name: form.value('name') || undefined, dir: form.value('dir') || undefined, text: form.inputs.get('text').value},
      };
    },
  });
  return append(
    form.el,
    form.field({
      name: 'text',
      label: 'Job file',
      type: 'textarea',
      rows: 20,
      required: true,
      spellcheck: false,
      hint: 'YAML or JSON: a file of jobs, or a single job.',
      props: {
        class: 'mono-input',
        placeholder:
          'jobs:\n  - id: fix-login\n    worker: codex\n    workspace:\n      path: /home/ann/shop\n    instructions: The login form accepts an empty password. Fix it and add a test.\n    verify: go test ./...',
      },
    }),
    h(
      'div',
      {class: 'form-row'},
      form.field({
        name: 'dir',
        label: 'Folder',
        hint: 'Absolute, on the scheduler\u2019s host, where relative paths start; empty: they are refused.',
        props: {spellcheck: 'false'},
      }),
      form.field({
        name: 'name',
        label: 'Name of the file',
        placeholder: 'request',
        hint: 'The name that problems are reported under.',
        props: {spellcheck: 'false'},
      }),
    ),
    form.problem,
    h('div', {class: 'form-actions'}, form.button),
  );
}
