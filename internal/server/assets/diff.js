// A viewer of patches in git's unified form: the files with what was added and taken
// out, each file's hunks with line numbers. What is long is folded, and drawn only
// when it is opened.

import {h, append, replace, badge, exact, count, plural} from './dom.js';

const FOLD = 400; // lines of a file that is shown unfolded
const PIECE = 1500; // lines that are drawn at once
const UNFOLDED = 3000; // lines of all files that are shown unfolded

// parse returns the files of a patch:
//
//   {from, to, change, binary, added, removed, hunks: [{head, lines: [{sign, text, old, new}]}], lines}
//
// Text that is no patch gives no files.
export function parse(text) {
  const files = [];
  let file = null,
    hunk = null,
    oldLeft = 0,
    newLeft = 0,
    oldLine = 0,
    newLine = 0;
  const begin = () => {
    file = {from: '', to: '', change: 'modified', binary: false, added: 0, removed: 0, hunks: [], lines: 0};
    hunk = null;
    files.push(file);
  };
  const lines = text.split('\n');
  if (lines.at(-1) === '') lines.pop();
  for (const line of lines) {
    if (hunk && (oldLeft > 0 || newLeft > 0)) {
      const sign = line[0] || ' ';
      if (sign === '+' || sign === '-' || sign === ' ') {
        const entry = {sign, text: line.slice(1), old: 0, new: 0};
        if (sign !== '+') {
          entry.old = oldLine++;
          oldLeft--;
        }
        if (sign !== '-') {
          entry.new = newLine++;
          newLeft--;
        }
        if (sign === '+') file.added++;
        if (sign === '-') file.removed++;
        hunk.lines.push(entry);
        file.lines++;
        continue;
      }
    }
    if (line.startsWith('\\')) {
      // "\ No newline at end of file"
      hunk?.lines.push({sign: '\\', text: line.slice(2), old: 0, new: 0});
      continue;
    }
    if (line.startsWith('diff --git ')) {
      begin();
      [file.from, file.to] = names(line.slice(11));
      continue;
    }
    if (line.startsWith('--- ') && (!file || hunk)) begin(); // a patch without git's own lines
    if (!file) continue;
    const at = /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@(.*)$/.exec(line);
    if (at) {
      hunk = {head: line, lines: []};
      file.hunks.push(hunk);
      [oldLine, oldLeft, newLine, newLeft] = [Number(at[1]), Number(at[2] ?? 1), Number(at[3]), Number(at[4] ?? 1)];
    } else if (line.startsWith('--- ')) {
      file.from = name(line.slice(4)) ?? file.from;
    } else if (line.startsWith('+++ ')) {
      file.to = name(line.slice(4)) ?? file.to;
    } else if (line.startsWith('new file')) {
      file.change = 'added';
    } else if (line.startsWith('deleted file')) {
      file.change = 'deleted';
    } else if (line.startsWith('rename from ')) {
      [file.change, file.from] = ['renamed', unquote(line.slice(12))];
    } else if (line.startsWith('rename to ')) {
      file.to = unquote(line.slice(10));
    } else if (line.startsWith('Binary files ') || line.startsWith('GIT binary patch')) {
      file.binary = true;
    } else if (line.startsWith('new mode ')) {
      file.mode = line.slice(9);
    }
  }
  return files;
}

// names returns the two paths of a "diff --git" line. Where they are the same they are
// its halves, however many spaces they hold; others are told again by later lines.
function names(rest) {
  const half = (rest.length - 1) / 2;
  const [a, b] = [unquote(rest.slice(0, half)), unquote(rest.slice(half + 1))].map((p) => p.replace(/^[ab]\//, ''));
  if (rest[half] === ' ' && a === b) return [a, b];
  const other = /^"?a\/(.*?)"? "?b\/(.*?)"?$/.exec(rest);
  return other ? [other[1], other[2]] : ['', ''];
}

// name returns the path of a "---" or "+++" line, null of /dev/null.
function name(text) {
  const path = unquote(text.replace(/\t.*$/, ''));
  return path === '/dev/null' ? null : path.replace(/^[ab]\//, '');
}

// unquote reads a path as git writes it where it holds special characters.
function unquote(text) {
  if (!text.startsWith('"') || !text.endsWith('"') || text.length < 2) return text;
  const bytes = [];
  const plain = {n: 10, t: 9, r: 13, '"': 34, '\\': 92, a: 7, b: 8, f: 12, v: 11};
  for (let i = 1; i < text.length - 1; i++) {
    if (text[i] !== '\\') {
      bytes.push(...new TextEncoder().encode(text[i]));
      continue;
    }
    const octal = /^[0-7]{3}/.exec(text.slice(i + 1));
    if (octal) {
      bytes.push(parseInt(octal[0], 8));
      i += 3;
    } else {
      bytes.push(plain[text[i + 1]] ?? text.charCodeAt(i + 1));
      i++;
    }
  }
  return new TextDecoder().decode(new Uint8Array(bytes));
}

// changeView returns an element that shows what a single change would do: a patch, or its lines alone, each with its sign.
export function changeView(text) {
  if (parse(text).length) return diffView(text);
  const f = {from: '', to: 'what would change', hunks: [{head: '', lines: []}]};
  for (const line of text.replace(/\n$/, '').split('\n')) {
    const sign = line[0] === '+' || line[0] === '-' ? line[0] : ' ';
    f.hunks[0].lines.push({sign, text: sign === ' ' ? line : line.slice(1), old: 0, new: 0});
  }
  const box = h('div', {class: 'diff-lines', tabindex: '0', role: 'group', 'aria-label': 'What it would change'});
  lines(box, f);
  return box;
}

// diffView returns an element that shows a patch; cut says that the text is only the
// beginning of it, and whole is a link to all of it. With comments (comments.js) each
// line can be commented on.
export function diffView(text, {cut = false, whole, comments} = {}) {
  const files = parse(text);
  if (!files.length)
    return h(
      'p',
      {class: 'empty', 'data-testid': 'diff'},
      text.trim() ? h('pre', {class: 'prose'}, exact(text.slice(0, 20000))) : 'Nothing was changed.',
    );
  const all = h('div', {'data-testid': 'diff'});
  const added = files.reduce((n, f) => n + f.added, 0),
    removed = files.reduce((n, f) => n + f.removed, 0);
  const shown = [];
  let room = UNFOLDED;
  for (const f of files) {
    const open = !f.binary && f.lines <= FOLD && f.lines <= room;
    if (open) room -= f.lines;
    shown.push(fileView(f, open, comments));
  }
  append(
    all,
    h('p', {class: 'muted'}, plural(files.length, 'file'), ' ', counts(added, removed)),
    files.length > 1
      ? h(
          'ul',
          {class: 'diff-files', 'aria-label': 'Changed files'},
          files.map((f, i) =>
            h(
              'li',
              null,
              h(
                'a',
                {
                  href: '#',
                  role: 'button',
                  onclick: (event) => {
                    event.preventDefault();
                    shown[i].open = true;
                    shown[i].scrollIntoView({block: 'start'});
                    shown[i].querySelector('summary').focus({preventScroll: true});
                  },
                },
                h('span', {class: 'name'}, title(f)),
                f.change === 'modified' ? null : badge(f.change, {tone: tones[f.change]}),
                counts(f.added, f.removed),
              ),
            ),
          ),
        )
      : null,
    shown,
    cut ? h('p', {class: 'diff-note'}, 'The patch is too large to be shown whole. ', whole) : null,
  );
  return all;
}

const tones = {added: 'good', deleted: 'bad', renamed: 'idle'};
const title = (f) =>
  exact(
    f.change === 'renamed' && f.from !== f.to ? f.from + ' \u2192 ' + f.to : f.change === 'deleted' ? f.from || f.to : f.to || f.from,
  );

function counts(added, removed) {
  return h(
    'span',
    {class: 'num'},
    h('span', {class: 'plus'}, '+' + count(added)),
    ' ',
    h('span', {class: 'minus'}, '\u2212' + count(removed)),
    h('span', {class: 'sr-only'}, ` ${added} lines added, ${removed} removed`),
  );
}

function fileView(f, open, comments) {
  const body = h('div', {class: 'diff-lines', tabindex: '0', role: 'group', 'aria-label': 'Changes of ' + title(f)});
  let drawn = false;
  const draw = () => {
    if (drawn) return;
    drawn = true;
    if (f.binary) replace(body, h('p', {class: 'diff-note'}, 'A binary file, which is not shown.'));
    else if (!f.hunks.length)
      replace(body, h('p', {class: 'diff-note'}, f.mode ? 'New mode: ' + f.mode + '.' : 'The content is unchanged.'));
    else lines(body, f, comments);
  };
  const el = h(
    'details',
    {
      class: 'diff-file',
      'data-testid': 'diff-file',
      open,
      ontoggle: () => {
        if (el.open) draw();
      },
    },
    h(
      'summary',
      null,
      h('span', {class: 'name'}, title(f)),
      f.change === 'modified' ? null : badge(f.change, {tone: tones[f.change]}),
      !open && !f.binary && f.lines > FOLD ? h('span', {class: 'muted nowrap'}, plural(f.lines, 'line')) : null,
      counts(f.added, f.removed),
    ),
    body,
  );
  if (open) draw();
  return el;
}

const kinds = {'+': 'add', '-': 'del', ' ': 'same', '\\': 'same'};
const spoken = {'+': 'added: ', '-': 'removed: '};

// lines draws the lines of a file, a piece at a time.
function lines(box, f, comments) {
  const body = h('tbody');
  const rows = f.hunks.flatMap((hunk) => [...(hunk.head ? [{hunk: hunk.head}] : []), ...hunk.lines]);
  const says = comments?.of(f, body);
  let at = 0;
  const more = h('button', {type: 'button', class: 'link diff-note', onclick: piece});
  function piece() {
    for (const l of rows.slice(at, at + PIECE)) {
      const row = l.hunk ? headRow(l.hunk) : lineRow(l);
      body.append(row);
      if (says && (l.old || l.new)) says.add(row, l);
    }
    at += PIECE;
    more.hidden = at >= rows.length;
    more.textContent = 'Show ' + plural(Math.min(PIECE, rows.length - at), 'more line');
  }
  replace(box, h('table', {'aria-label': 'Changed lines'}, body), more);
  piece();
}

function headRow(head) {
  return h('tr', {class: 'hunk'}, h('td', {class: 'ln'}), h('td', {class: 'ln'}), h('td', {class: 'sign'}), h('td', {class: 'code'}, exact(head)));
}

function lineRow(l) {
  return h(
    'tr',
    {class: kinds[l.sign]},
    h('td', {class: 'ln', 'data-n': l.old || ''}),
    h('td', {class: 'ln', 'data-n': l.new || ''}),
    h('td', {class: 'sign', 'aria-hidden': 'true'}, l.sign === '-' ? '\u2212' : l.sign.trim()),
    h('td', {class: 'code'}, spoken[l.sign] ? h('span', {class: 'sr-only'}, spoken[l.sign]) : null, exact(l.text)),
  );
}
