// The form of an answer that has a JSON schema, as agents' programs write them: some properties, each a text, a number, a yes or
// one or several of some words.

import {h, firstLine, visible} from './dom.js';

const MOST = 40; // fields, or choices of one

// fieldsOf returns the fields of a schema, [{name, label, kind, choices, required}], where kind is one, several, text, number or
// yes, and choices are the words of one and several, and what may be proposed for text. A schema of a single value gives one
// field without a name. null: there is no form for it.
export function fieldsOf(schema) {
  if (!schema || typeof schema !== 'object') return null;
  const {properties, required} = schema;
  if (schema.type !== 'object' && !properties) {
    const one = fieldOf('', schema, true);
    return one ? [one] : null;
  }
  const names = Object.keys(properties || {});
  if (!names.length || names.length > MOST) return null;
  const must = Array.isArray(required) ? required : [];
  const fields = names.map((name) => fieldOf(name, properties[name], must.includes(name)));
  return fields.every(Boolean) ? fields : null;
}

function fieldOf(name, s, required) {
  if (!s || typeof s !== 'object') return null;
  const field = {name, label: String(s.title || s.description || name || 'Answer'), required, kind: '', choices: []};
  const words = (list) => (Array.isArray(list) && list.length && list.length <= MOST && list.every((w) => typeof w === 'string') ? list : null);
  const titled = Array.isArray(s.oneOf) ? s.oneOf.map((o) => o?.const) : null;
  if (words(s.enum) || words(titled)) return {...field, kind: 'one', choices: words(s.enum) || titled};
  if (s.type === 'array') {
    const item = fieldOf('', s.items, false);
    return item && ['one', 'text'].includes(item.kind) && item.choices.length ? {...field, kind: 'several', choices: item.choices} : null;
  }
  if (s.type === 'string') return {...field, kind: 'text', choices: words(s.examples) || []};
  if (s.type === 'number' || s.type === 'integer') return {...field, kind: 'number'};
  if (s.type === 'boolean') return {...field, kind: 'yes'};
  return null;
}

// valueOf returns the answer of what was entered, by the fields' names: texts, lists of words of several, booleans of yes.
// It throws what is missing.
export function valueOf(fields, entered) {
  const value = {};
  for (const f of fields) {
    const v = entered[f.name];
    const none = v === undefined || v === null || (typeof v === 'string' && !v.trim()) || (Array.isArray(v) && !v.length);
    if (none && f.required) throw new Error(firstLine(visible(f.label), 80) + ' is missing.');
    if (none) continue;
    if (f.kind !== 'number') value[f.name] = typeof v === 'string' ? v.trim() : v;
    else if (Number.isFinite(Number(v))) value[f.name] = Number(v);
    else throw new Error(firstLine(visible(f.label), 80) + ' must be a number.');
  }
  return fields.length === 1 && fields[0].name === '' ? value[''] : value;
}

// formOf draws fields: {el, read()}, where read returns what was entered.
export function formOf(fields, id) {
  const reads = fields.map((f, i) => draw(f, `${id}-${i}`));
  return {
    el: reads.map((r) => r.el),
    read: () => Object.fromEntries(fields.map((f, i) => [f.name, reads[i].read()])),
  };
}

function draw(f, id) {
  const label = visible(f.label) + (f.required ? '' : ' (if you like)');
  if (f.kind === 'one' || f.kind === 'several') {
    const type = f.kind === 'one' ? 'radio' : 'checkbox';
    const inputs = f.choices.map((c, i) => h('input', {type, name: id, value: c, id: `${id}-${i}`, 'data-testid': 'choice'}));
    const chosen = () => inputs.filter((input) => input.checked).map((input) => f.choices[inputs.indexOf(input)]);
    return {
      el: h(
        'fieldset',
        {class: 'choices'},
        h('legend', null, label),
        inputs.map((input, i) => h('div', {class: 'check'}, input, h('label', {for: input.id}, visible(f.choices[i])))),
      ),
      read: () => (f.kind === 'one' ? chosen()[0] : chosen()),
    };
  }
  if (f.kind === 'yes') {
    const input = h('input', {type: 'checkbox', id});
    return {el: h('div', {class: 'check'}, input, h('label', {for: id}, label)), read: () => input.checked};
  }
  const input = h('input', {type: 'text', id, inputmode: f.kind === 'number' ? 'decimal' : null, autocomplete: 'off', list: f.choices.length ? id + '-list' : null});
  return {
    el: h(
      'div',
      {class: 'field'},
      h('label', {for: id}, label),
      input,
      f.choices.length
        ? h(
            'datalist',
            {id: id + '-list'},
            f.choices.map((c) => h('option', {value: c})),
          )
        : null,
    ),
    read: () => input.value,
  };
}
