// What the pages are built of. Text from outside (prompts, logs, file names,
// diffs, names, problems) reaches the document as text nodes and attributes
// alone: nothing here, nor in any other module, parses markup. What this module does
// not hold itself it gives on from format.js, parts.js and dialogs.js, so that a page
// imports all of it from here.

export * from './format.js';
export * from './parts.js';
export * from './dialogs.js';

const SVG = 'http://www.w3.org/2000/svg';

// h returns an HTML element:
//
//   h('button', {class: 'primary', onclick: save, disabled: !ok, 'data-testid': 'save'}, 'Save')
//
// Of its properties, those named onEVENT are functions and are added as
// listeners; class may be a list, in which what is empty or false is left out; style is an
// object of CSS properties ({'--part': '40%'}), set through the CSSOM; value,
// checked, selected, disabled, hidden, open, indeterminate are set on the
// element; href must lead within this origin; ref is called with the element. All
// else becomes an attribute, true an empty one; null, undefined and false leave it
// out. Children are nodes, text, numbers or lists of them; null, undefined, true
// and false are left out.
export function h(tag, props, ...children) {
  return build(document.createElement(tag), props, children);
}

// s is h for SVG.
export function s(tag, props, ...children) {
  return build(document.createElementNS(SVG, tag), props, children);
}

const live = new Set(['value', 'checked', 'selected', 'disabled', 'hidden', 'open', 'indeterminate']);

function build(el, props, children) {
  append(el, children); // before value, which a select takes only if the option is there
  for (const [name, value] of Object.entries(props || {})) {
    if (name === 'ref') {
      value(el);
    } else if (name.startsWith('on')) {
      if (typeof value === 'function') el.addEventListener(name.slice(2), value);
    } else if (name === 'style') {
      for (const [k, v] of Object.entries(value || {})) el.style.setProperty(k, String(v));
    } else if (name === 'class') {
      const names = [value].flat().filter(Boolean).join(' ');
      if (names) el.setAttribute('class', names);
    } else if (live.has(name) && el.namespaceURI !== SVG) {
      if (value !== undefined && value !== null) el[name] = value;
    } else if (value === null || value === undefined || value === false) {
      continue;
    } else if (name === 'href' || name === 'src' || name === 'action') {
      el.setAttribute(name, within(String(value)));
    } else if (name === 'srcdoc') {
      throw new Error('srcdoc parses markup');
    } else {
      el.setAttribute(name, value === true ? '' : String(value));
    }
  }
  return el;
}

// within returns the address if it is one of this origin, else "#".
function within(address) {
  if (address.startsWith('#')) return address;
  try {
    const url = new URL(address, location.href);
    return url.origin === location.origin && (url.protocol === 'http:' || url.protocol === 'https:') ? address : '#';
  } catch {
    return '#';
  }
}

// append adds children as h does, and returns el.
export function append(el, ...children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === true || child === false) continue;
    el.append(child instanceof Node ? child : String(child));
  }
  return el;
}

// replace puts children in the place of all that el holds. What has the focus
// keeps it, if it has an id or a data-key that the new content has too.
export function replace(el, ...children) {
  const had = el.contains(document.activeElement) ? document.activeElement : null;
  const fresh = append(document.createDocumentFragment(), ...children);
  el.replaceChildren(fresh);
  if (!had) return el;
  const again = had.id
    ? document.getElementById(had.id)
    : had.dataset.key
      ? [...el.querySelectorAll('[data-key]')].find((e) => e.dataset.key === had.dataset.key)
      : null;
  if (again && el.contains(again)) again.focus({preventScroll: true});
  return el;
}

// refresh is replace, unless the new content looks the same: then what is there stays,
// with its selection and its place, and nothing is read out again.
export function refresh(el, ...children) {
  const fresh = append(el.cloneNode(false), ...children);
  return fresh.isEqualNode(el) ? el : replace(el, [...fresh.childNodes]);
}

// link returns the address of a page from a template, each value of it encoded:
// href={link`/jobs/${id}`}.
export function link(strings, ...values) {
  return '#' + strings.reduce((all, part, i) => all + encodeURIComponent(values[i - 1]) + part);
}

// visible returns text with what a terminal would obey and a reader cannot see
// made harmless: colour codes are taken out, other control characters and those
// that turn the direction of writing are shown by their code.
export function visible(text) {
  return exact(String(text ?? '').replace(/\u001b\[[0-?]*[ -/]*[@-~]|\u001b\][^\u0007\u001b]*(?:\u0007|\u001b\\)/g, ''));
}

// exact is visible for code that somebody judges: nothing is taken out, since what
// runs it may do what a terminal would not show.
export function exact(text) {
  return String(text ?? '')
    .replace(/\r\n/g, '\n')
    .replace(
      /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u180e\u200b\u200e\u200f\u2028\u2029\u202a-\u202e\u2060-\u206f\ufeff\u{e0000}-\u{e007f}]/gu,
      (c) => '\u27e8' + c.codePointAt(0).toString(16).toUpperCase().padStart(4, '0') + '\u27e9',
    );
}

// firstLine returns the first line of a text, at most max characters of it.
export function firstLine(text, max = 200) {
  const line = String(text ?? '')
    .trimStart()
    .split('\n', 1)[0];
  return line.length > max ? line.slice(0, max - 1) + '\u2026' : line;
}

// setText sets an element's text if it has another.
export function setText(el, text) {
  if (el.textContent !== text) el.textContent = text;
}
