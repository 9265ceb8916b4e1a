// Messages in the corner, dialogs, and the fields of forms.

import {h, visible} from './dom.js';
import {icon} from './parts.js';

// toast tells of something in the corner; tone good, bad or idle. What is bad stays
// until somebody closes it, at most five at once.
export function toast(message, {tone = 'good', detail} = {}) {
  const box = document.getElementById('toasts');
  const el = h(
    'div',
    {class: ['toast', 'tone-' + tone], 'data-testid': 'toast', role: tone === 'bad' ? 'alert' : null},
    h('div', {class: 'toast-text'}, h('p', null, visible(message)), detail ? h('p', {class: 'muted'}, visible(detail)) : null),
    h('button', {type: 'button', class: 'ghost icon-only', 'aria-label': 'Close this message', onclick: () => el.remove()}, icon('close')),
  );
  box.append(el);
  while (box.children.length > 5) box.firstElementChild.remove();
  if (tone !== 'bad') setTimeout(() => el.remove(), 6000);
}

// failed tells of an error of a call: the problem's title and detail. One that says
// that nobody waits any more is not told, nor one of a session that has ended, since the
// whole page then says so.
export function failed(error, doing) {
  if (error?.name === 'AbortError' || error?.status === 401) return;
  const listed = (error?.errors || []).map((e) => (e.location ? e.location + ': ' : '') + e.message).join('\n');
  toast(doing || error?.title || 'The action failed', {
    tone: 'bad',
    detail: [error?.detail || error?.message || String(error), listed].filter(Boolean).join('\n'),
  });
}

// ask opens a dialog and returns what was entered, an object by the fields' names, or
// null if it was closed. fields are {name, label, type: text|textarea|checkbox|select,
// value, required, hint, options: [[value, label]]}. Escape closes it, Ctrl+Enter
// confirms. With run(values) the dialog stays open until that has succeeded, and
// shows its error; ask then returns the values.
export function ask({title, text, fields = [], confirm = 'OK', tone, run, testid = 'dialog'}) {
  return new Promise((resolve) => {
    const inputs = new Map();
    const problem = h('p', {class: 'field-problem', role: 'alert', 'data-testid': 'dialog-problem'});
    const ok = h('button', {type: 'submit', class: ['primary', tone && 'tone-' + tone], 'data-testid': 'dialog-confirm'}, confirm);
    const form = h(
      'form',
      {method: 'dialog', novalidate: true},
      h('h2', {id: 'dialog-title'}, title),
      text ? h('p', {class: 'dialog-text'}, text) : null,
      fields.map((f, i) => field(f, 'dialog-field-' + i, inputs)),
      problem,
      h(
        'div',
        {class: 'dialog-actions'},
        h('button', {type: 'button', class: 'ghost', 'data-testid': 'dialog-cancel', onclick: () => dialog.close()}, 'Close'),
        ok,
      ),
    );
    const dialog = h('dialog', {'aria-labelledby': 'dialog-title', 'data-testid': testid}, form);
    let answer = null;
    form.addEventListener('submit', async (event) => {
      event.preventDefault();
      const values = {};
      for (const f of fields) {
        const el = inputs.get(f.name);
        values[f.name] = f.type === 'checkbox' ? el.checked : el.value;
        if (f.required && !String(values[f.name]).trim()) {
          problem.textContent = f.label + ' is missing.';
          el.focus();
          return;
        }
      }
      problem.textContent = '';
      ok.disabled = true;
      try {
        if (run) await run(values);
        answer = values;
        dialog.close();
      } catch (error) {
        problem.textContent = visible(error?.detail || error?.message || String(error));
      } finally {
        ok.disabled = false;
      }
    });
    dialog.addEventListener('keydown', (event) => {
      if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) form.requestSubmit();
      event.stopPropagation(); // the page's own keys rest meanwhile
    });
    dialog.addEventListener('close', () => {
      dialog.remove();
      resolve(answer);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

// keyGroups lists the keys of the pages: what they are for, and [keys, what they do].
const keyGroups = [
  [
    'Everywhere',
    [
      [['/'], 'search jobs'],
      [['?'], 'show these keys'],
      [['Esc'], 'close a dialog or the menu'],
      [['Ctrl', 'Enter'], 'confirm a dialog'],
    ],
  ],
  [
    'Approvals',
    [
      [['j'], 'next'],
      [['k'], 'previous'],
      [['a'], 'approve'],
      [['r'], 'reject'],
      [['o'], 'open the job'],
    ],
  ],
  [
    'Timeline, charts and the graph of a workflow',
    [
      [['\u2190', '\u2192', '\u2191', '\u2193'], 'go from one to the next'],
      [['Home', 'End'], 'first and last'],
      [['Enter'], 'open the job'],
      [['Space'], 'unfold the parts of a job in the graph'],
    ],
  ],
];

// showKeys opens a dialog with the keys of the pages; Escape closes it. There is one at most.
export function showKeys() {
  if (document.querySelector('dialog[open]')) return;
  const dialog = h(
    'dialog',
    {'aria-labelledby': 'keys-title', 'data-testid': 'dialog-keys'},
    h('h2', {id: 'keys-title'}, 'Keys'),
    keyGroups.map(([title, keys]) => [
      h('h3', null, title),
      h(
        'dl',
        {class: 'keys'},
        keys.map(([names, what]) =>
          h(
            'div',
            null,
            h(
              'dt',
              null,
              names.map((name, i) => [i ? ' ' : '', h('kbd', null, name)]),
            ),
            h('dd', null, what),
          ),
        ),
      ),
    ]),
    h(
      'div',
      {class: 'dialog-actions'},
      h('button', {type: 'button', 'data-testid': 'dialog-cancel', onclick: () => dialog.close()}, 'Close'),
    ),
  );
  dialog.addEventListener('keydown', (event) => event.stopPropagation());
  dialog.addEventListener('close', () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

// field returns a labelled control; inputs (a Map) gets the control by f.name.
export function field(f, id, inputs) {
  const hint = f.hint ? h('span', {class: 'hint', id: id + '-hint'}, f.hint) : null;
  const common = {
    id,
    name: f.name,
    'aria-describedby': hint ? id + '-hint' : null,
    'aria-required': f.required ? 'true' : null,
    autocomplete: 'off',
    'data-testid': 'field-' + f.name,
    disabled: Boolean(f.disabled),
    ...f.props,
  };
  const control =
    f.type === 'textarea'
      ? h('textarea', {rows: f.rows || 4, value: f.value ?? '', spellcheck: f.spellcheck === false ? 'false' : null, ...common})
      : f.type === 'select'
        ? h(
            'select',
            {value: f.value, ...common},
            (f.options || []).map(([value, label, off]) => h('option', {value, disabled: Boolean(off)}, label)),
          )
        : f.type === 'checkbox'
          ? h('input', {type: 'checkbox', checked: Boolean(f.value), ...common})
          : h('input', {type: f.type || 'text', value: f.value ?? '', placeholder: f.placeholder, ...common});
  inputs?.set(f.name, control);
  const label = h('label', {for: id}, f.label, f.required ? h('span', {class: 'muted', 'aria-hidden': 'true'}, ' *') : null);
  return h(
    'div',
    {class: ['field', f.type === 'checkbox' && 'field-check', f.class]},
    f.type === 'checkbox' ? [control, label] : [label, control],
    hint,
    h('span', {class: 'field-problem', id: id + '-problem'}),
  );
}
