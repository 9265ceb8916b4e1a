// What tells somebody who looks elsewhere that a person is needed: a count in the title, and a notification of the browser if
// that person has asked for them.

import {firstLine, h, icon, replace, toast, visible} from './dom.js';
import {subjectOf, wantOf} from './questions.js';

const KEPT = 'notify'; // in the browser's storage: "on" after somebody has asked for notifications

// lineOf returns what a notification says of a question: the name of the job, and one short line without anything that is not seen.
export function lineOf(q) {
  const short = (text, max) => firstLine(visible(text).replace(/\s+/g, ' '), max);
  const about = short(subjectOf(q) || q.text, 80);
  return {title: short(q.name, 60) + ' ' + wantOf(q), body: about};
}

// Attention counts what needs a person.
export class Attention {
  constructor() {
    this.count = 0;
    this.name = '';
    this.known = null; // what was open when it was counted last: keys of questions
    this.approvals = 0;
  }

  // title sets the name of the page.
  title(name) {
    this.name = name;
    this.draw();
  }

  draw() {
    document.title = (this.count ? `(${this.count}) ` : '') + visible(this.name) + ' \u00b7 scheduler';
  }

  // show takes the open questions and how many jobs wait for approval, and tells of what is new since the last call.
  show(questions, approvals) {
    this.count = questions.length + approvals;
    this.draw();
    const keys = new Map(questions.map((q) => [q.job + '/' + q.number, q]));
    if (this.known && this.on && (document.hidden || !document.hasFocus())) {
      const fresh = [...keys].filter(([key]) => !this.known.has(key));
      for (const [key, q] of fresh.slice(-3)) this.notify(key, lineOf(q), '/jobs/' + encodeURIComponent(q.job));
      if (approvals > this.approvals) {
        const n = approvals === 1 ? 'A job waits for approval' : `${approvals} jobs wait for approval`;
        this.notify('approvals', {title: n, body: ''}, '/approvals');
      }
    }
    this.known = new Set(keys.keys());
    this.approvals = approvals;
  }

  notify(tag, {title, body}, address) {
    try {
      const n = new Notification(title, {body, tag});
      n.onclick = () => {
        window.focus();
        location.hash = '#' + address;
        n.close();
      };
    } catch {
      /* some browsers of phones have the name, and no such thing */
    }
  }

  // can reports whether the browser has notifications, which it has on a page that came safely.
  get can() {
    return 'Notification' in window && window.isSecureContext;
  }

  // on reports whether somebody has asked for them, and the browser allows them.
  get on() {
    try {
      return this.can && Notification.permission === 'granted' && localStorage.getItem(KEPT) === 'on';
    } catch {
      return false;
    }
  }

  // button returns what switches notifications on and off: only a click on it asks the browser.
  button() {
    const el = h('button', {type: 'button', class: 'ghost notify', 'data-testid': 'notify', onclick: () => this.toggle(el)});
    el.hidden = !this.can;
    this.label(el);
    return el;
  }

  label(el) {
    el.setAttribute('aria-pressed', String(this.on));
    replace(el, icon('bell'), h('span', null, this.on ? 'Notifications on' : 'Notify me'));
  }

  async toggle(el) {
    try {
      if (this.on) localStorage.removeItem(KEPT);
      else if ((await Notification.requestPermission()) === 'granted') localStorage.setItem(KEPT, 'on');
      else toast('The browser allows this page no notifications.', {tone: 'idle', detail: 'Its settings for this site can change that.'});
    } catch (error) {
      toast('The browser keeps no settings of this page.', {tone: 'bad', detail: String(error)});
    }
    this.label(el);
  }
}
