// Comments on lines of a diff. They are collected, and become one message to the job's agent.
//
// data-testid: line-comment (the button of a line), comment, comment-text, comment-add, comment-edit, comment-remove

import {h, visible} from './dom.js';
import {onEnter} from './questions.js';

const MOST = 200; // comments at once
const QUOTED = 200; // characters of a line that is quoted

// place returns where a comment is: "login.go:12", of a line that was taken out "login.go:12 (removed)".
export const place = (c) => `${visible(c.path)}:${c.line}${c.sign === '-' ? ' (removed)' : ''}`;

// compose returns one message of what somebody has written and of comments: each with its place and the line that it is on, in the
// order of the files and lines.
export function compose(text, list) {
  const sorted = [...list].sort((a, b) => (a.path < b.path ? -1 : a.path > b.path ? 1 : a.line - b.line));
  const quote = (c) => (c.quote.length > QUOTED ? c.quote.slice(0, QUOTED) + '\u2026' : c.quote);
  return [text.trim(), ...sorted.map((c) => `${place(c)}\n> ${visible(quote(c))}\n${c.text.trim()}`)].filter(Boolean).join('\n\n');
}

const keyOf = (c) => [c.path, c.sign === '-' ? '-' : '+', c.line].join('\0');

// Comments are those of one job that were not sent yet; changed is called after each change. list is
// [{path, line, sign, quote, text}].
export class Comments {
  constructor(changed = () => {}) {
    this.changed = changed;
    this.list = [];
  }

  // set replaces all of them, before a diff is drawn or after they were sent.
  set(list) {
    for (const c of this.list) c.row?.remove();
    this.list = list.slice(0, MOST);
  }

  remove(c) {
    this.list = this.list.filter((other) => other !== c);
    c.row?.remove();
    this.changed();
  }

  // of prepares the table of a file for comments: add(row, line) is called for each of its lines.
  of(file, body) {
    const path = file.change === 'deleted' ? file.from || file.to : file.to || file.from;
    const lines = new WeakMap(); // row → what is commented on there
    const open = (row) => this.open(row, lines.get(row));
    body.addEventListener('click', (event) => {
      const cell = event.target.closest('td.ln');
      if (cell && lines.has(cell.parentElement)) open(cell.parentElement);
    });
    body.addEventListener('keydown', (event) => move(event, body));
    let first = true;
    return {
      add: (row, l) => {
        const at = {path, line: l.new || l.old, sign: l.sign, quote: l.text};
        lines.set(row, at);
        row.cells[1].append(
          h(
            'button',
            {type: 'button', class: 'ln-say', tabindex: first ? '0' : '-1', 'aria-label': 'Comment on ' + place(at), 'data-testid': 'line-comment'},
            '+',
          ),
        );
        first = false;
        const had = this.list.find((c) => keyOf(c) === keyOf(at) && c.quote === at.quote);
        if (had) this.show(row, had);
      },
    };
  }

  // open lets somebody write on a line, or change what is written there.
  open(row, at) {
    const had = this.list.find((c) => keyOf(c) === keyOf(at) && c.quote === at.quote);
    if (!had && this.list.length >= MOST) return;
    const below = row.nextElementSibling;
    if (below?.dataset.editing) {
      below.querySelector('textarea').focus();
      return;
    }
    had?.row?.remove();
    const text = h('textarea', {rows: 2, value: had?.text || '', 'aria-label': 'Comment on ' + place(at), 'data-testid': 'comment-text'});
    const editor = rowOf(
      text,
      h(
        'div',
        {class: 'comment-actions'},
        h('button', {type: 'button', class: 'primary', 'data-testid': 'comment-add', onclick: () => keep()}, had ? 'Change' : 'Add comment'),
        h('button', {type: 'button', class: 'ghost', onclick: () => close()}, 'Close'),
      ),
    );
    editor.dataset.editing = 'true';
    const back = () => row.querySelector('.ln-say').focus({preventScroll: true});
    const close = () => {
      editor.remove();
      if (had) this.show(row, had);
      back();
    };
    const keep = () => {
      const words = text.value.trim();
      if (!words) return;
      const c = had || {...at};
      c.text = words;
      if (!had) this.list.push(c);
      editor.remove();
      this.show(row, c);
      back();
      this.changed();
    };
    onEnter(text, keep);
    text.addEventListener('keydown', (event) => {
      if (event.key === 'Escape') close();
      event.stopPropagation();
    });
    row.after(editor);
    text.focus();
  }

  // show draws a comment below its line.
  show(row, c) {
    c.row?.remove();
    c.row = rowOf(
      h('p', {class: 'comment-words', 'data-testid': 'comment'}, visible(c.text)),
      h(
        'div',
        {class: 'comment-actions'},
        h('button', {type: 'button', class: 'link', 'data-testid': 'comment-edit', 'aria-label': 'Change the comment on ' + place(c), onclick: () => this.open(row, c)}, 'Change'),
        h('button', {type: 'button', class: 'link', 'data-testid': 'comment-remove', 'aria-label': 'Remove the comment on ' + place(c), onclick: () => this.remove(c)}, 'Remove'),
      ),
    );
    row.after(c.row);
  }
}

function rowOf(...content) {
  return h('tr', {class: 'comment'}, h('td', {colspan: '4'}, h('div', {class: 'comment-box'}, content)));
}

// move goes from line to line of a file by the arrow keys: one of its lines is where Tab leads to.
function move(event, body) {
  if (!event.target.classList.contains('ln-say')) return;
  const all = [...body.querySelectorAll('.ln-say')];
  const at = all.indexOf(event.target);
  const to = {ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1}[event.key];
  if (to === undefined || !all[to]) return;
  event.preventDefault();
  event.target.setAttribute('tabindex', '-1');
  all[to].setAttribute('tabindex', '0');
  all[to].focus();
}
