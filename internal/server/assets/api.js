// How the pages speak with the scheduler: calls, and its streams of events.

// Problem is an answer that is not 2xx (RFC 9457), or that none came: status 0.
export class Problem extends Error {
  constructor({type = 'about:blank', title = '', status = 0, detail = '', errors = []}) {
    super(detail || title);
    this.name = 'Problem';
    Object.assign(this, {type, title, status, detail: detail || title, errors: errors || []});
  }
}

// path returns the path of a route from a template, each value of it encoded:
// api.get(path`/v1/jobs/${id}`).
export function path(strings, ...values) {
  return strings.reduce((all, part, i) => all + encodeURIComponent(values[i - 1]) + part);
}

// query returns "?a=1&b=2", "" of nothing. Lists repeat their name; what is empty,
// null or false is left out.
export function query(values) {
  const q = new URLSearchParams();
  for (const [name, value] of Object.entries(values || {})) {
    for (const v of [value].flat()) if (v !== undefined && v !== null && v !== '' && v !== false) q.append(name, String(v));
  }
  const text = q.toString();
  return text ? '?' + text : '';
}

// onUnauthorized is called when the scheduler does not, or no longer, know us.
let onUnauthorized = () => {};
export function setOnUnauthorized(f) {
  onUnauthorized = f;
}

async function call(method, route, {query: q, body, headers, signal, text = false} = {}) {
  let response;
  try {
    response = await fetch(route + query(q), {
      method,
      signal,
      credentials: 'same-origin',
      cache: 'no-store',
      redirect: 'error',
      headers: {
        Accept: text ? 'text/plain, application/problem+json' : 'application/json, application/problem+json',
        ...(body === undefined ? null : {'Content-Type': 'application/json'}),
        ...headers,
      },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Problem({
      title: 'The scheduler does not answer',
      detail: 'The scheduler does not answer. It may be restarting; this page continues by itself when it is back.',
    });
  }
  if (!response.ok) throw await problemOf(response);
  if (text) return response;
  if (response.status === 204) return null;
  return response.json();
}

async function problemOf(response) {
  let body = {};
  try {
    body = await response.json();
  } catch {
    /* it is no JSON, then its status has to do */
  }
  const problem = new Problem({title: response.statusText || 'Error ' + response.status, ...body, status: response.status});
  if (response.status === 401) onUnauthorized(problem);
  return problem;
}

// api calls routes. Each call returns the answer's JSON or throws a Problem;
// options are query (an object), signal (an AbortSignal) and headers.
export const api = {
  get: (route, options) => call('GET', route, options),
  post: (route, body = {}, options) => call('POST', route, {...options, body}),
  put: (route, body = {}, options) => call('PUT', route, {...options, body}),
  // text returns the answer's text and size; of a long one its first max bytes, cut true.
  async text(route, {max = Infinity, ...options} = {}) {
    const response = await call('GET', route, {...options, text: true});
    const reader = response.body.getReader();
    const decoder = new TextDecoder();
    let text = '',
      size = 0;
    for (;;) {
      const {done, value} = await reader.read();
      if (done) return {text: text + decoder.decode(), size, cut: false};
      size += value.length;
      text += decoder.decode(value, {stream: true});
      if (size > max) {
        await reader.cancel();
        return {text, size, cut: true};
      }
    }
  },
};

const SILENCE = 45000; // ms; the scheduler sends a comment every 15 s
const HIDDEN = 20000; // ms that a hidden tab keeps its connection: a browser has six for a host
const FIRST_WAIT = 500,
  LONGEST_WAIT = 15000; // ms between two attempts to connect

// Listeners are functions that are called for events by their names.
class Listeners {
  constructor() {
    this.listeners = new Map();
  }

  // on calls f for each event of that name until the function that it returns is called.
  on(name, f) {
    if (!this.listeners.has(name)) this.listeners.set(name, new Set());
    this.listeners.get(name).add(f);
    return () => this.listeners.get(name).delete(f);
  }

  emit(name, ...args) {
    for (const f of [...(this.listeners.get(name) || [])]) {
      try {
        f(...args);
      } catch (error) {
        console.error(error); // one listener's fault is not the others'
      }
    }
  }
}

const HELD = 1000; // events that Held keeps at most

// Held passes on the events of a stream that have the given names, but keeps what
// comes while something is being fetched: what is fetched may be older than the event
// and would be shown instead of it. An event that was kept may in turn be older than
// what was fetched, but the last one about a thing is not. If more come than are kept,
// a single "gap" says that something was missed.
export class Held extends Listeners {
  constructor(stream, names) {
    super();
    this.held = [];
    this.under = 0; // calls of during that have not returned
    const offs = names.map((name) => stream.on(name, (...args) => this.hear(name, args)));
    this.close = () => {
      offs.forEach((off) => off());
      this.listeners.clear();
    };
  }

  // during calls f, which fetches something and shows it, and passes on what comes
  // meanwhile when that has ended.
  async during(f) {
    this.under++;
    try {
      return await f();
    } finally {
      if (--this.under === 0) for (const [name, args] of this.held.splice(0)) this.emit(name, ...args);
    }
  }

  hear(name, args) {
    if (!this.under) this.emit(name, ...args);
    else if (this.held.length < HELD) this.held.push([name, args]);
    else this.held = [['gap', [null]]];
  }
}

// Stream listens to Server-Sent Events at a route and goes on for ever: it connects
// again, later and later, after the connection or the scheduler was lost, and says
// in Last-Event-ID where it was. It is read with fetch instead of EventSource,
// because that tells neither that the session has ended (401) nor that the line has
// been silent for too long, and gives up after some errors. While nobody looks at the
// tab it lets go of the connection, unless awake() says that it is to stay.
//
//   const stream = new Stream('/v1/stream');
//   const off = stream.on('job', (data, id) => {…});  // data is parsed JSON
//   stream.on('state', (state) => {…});               // connecting, live, reconnecting, paused, closed
//   stream.close();
export class Stream extends Listeners {
  constructor(route, {lastId = '', awake = () => false} = {}) {
    super();
    this.route = route;
    this.lastId = lastId;
    this.state = 'connecting';
    this.closed = false;
    this.failures = 0;
    this.leave = new AbortController(); // of what it listens to
    const {signal} = this.leave;
    document.addEventListener(
      'visibilitychange',
      () => {
        clearTimeout(this.hidden);
        if (document.hidden) this.hidden = setTimeout(() => awake() || this.pause(), HIDDEN);
        else this.resume();
      },
      {signal},
    );
    window.addEventListener('pagehide', () => this.pause(), {signal});
    window.addEventListener('pageshow', () => this.resume(), {signal});
    this.connect();
  }

  setState(state) {
    if (this.state === state) return;
    this.state = state;
    this.emit('state', state);
  }

  // close ends it for good.
  close() {
    this.closed = true;
    this.leave.abort();
    this.abort?.abort();
    clearTimeout(this.timer);
    clearTimeout(this.hidden);
    this.setState('closed');
  }

  // pause lets go of the connection until resume.
  pause() {
    if (this.closed || this.paused) return;
    this.paused = true;
    this.abort?.abort();
    clearTimeout(this.timer);
    this.setState('paused');
  }

  resume() {
    if (this.closed || !this.paused) return;
    this.paused = false;
    this.failures = 0;
    this.setState('reconnecting');
    this.connect();
  }

  async connect() {
    const abort = (this.abort = new AbortController());
    let watch;
    const heard = () => {
      clearTimeout(watch);
      watch = setTimeout(() => abort.abort(), SILENCE);
    };
    try {
      heard();
      const response = await fetch(this.route, {
        signal: abort.signal,
        credentials: 'same-origin',
        cache: 'no-store',
        redirect: 'error',
        headers: {Accept: 'text/event-stream', ...(this.lastId ? {'Last-Event-ID': this.lastId} : null)},
      });
      if (!response.ok) throw await problemOf(response);
      this.failures = 0;
      this.setState('live');
      await this.read(response.body.getReader(), heard);
    } catch (error) {
      if (error instanceof Problem && (error.status === 401 || error.status === 403 || error.status === 404)) {
        this.close();
        this.emit('problem', error);
        return;
      }
    } finally {
      clearTimeout(watch);
    }
    if (this.closed || this.paused || abort !== this.abort) return;
    this.setState('reconnecting');
    const wait = Math.min(LONGEST_WAIT, FIRST_WAIT * 2 ** this.failures++);
    this.timer = setTimeout(() => this.connect(), wait * (0.75 + Math.random() / 2));
  }

  // read parses the stream: https://html.spec.whatwg.org/multipage/server-sent-events.html
  async read(reader, heard) {
    const decoder = new TextDecoder();
    let rest = '',
      name = '',
      data = [],
      id = this.lastId;
    for (;;) {
      const {done, value} = await reader.read();
      if (done) return;
      heard();
      const lines = (rest + decoder.decode(value, {stream: true})).split(/\r\n|\n|\r(?!$)/);
      rest = lines.pop();
      for (const line of lines) {
        if (line === '') {
          this.lastId = id;
          if (data.length) this.deliver(name || 'message', data.join('\n'), id);
          name = '';
          data = [];
          continue;
        }
        const colon = line.indexOf(':');
        const key = colon < 0 ? line : line.slice(0, colon);
        const text = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
        if (key === 'event') name = text;
        else if (key === 'data') data.push(text);
        else if (key === 'id' && !text.includes('\0')) id = text;
      }
      if (this.closed) return;
    }
  }

  deliver(name, text, id) {
    let data = null;
    try {
      data = JSON.parse(text);
    } catch {
      /* an event without JSON still happened */
    }
    this.emit(name, data, id);
  }
}
