// What may be done to jobs and to the scheduler, each asked for in a dialog where it
// cannot be taken back. Each returns the answer, or null if the person thought better.

import {api, path} from './api.js';
import {ask, toast, failed, firstLine} from './dom.js';

// named returns what a dialog calls a job: {id, name}.
const named = (job) => firstLine(job.name || job.id, 64);

async function confirmed(dialog, call) {
  let answer = null;
  const values = await ask({
    ...dialog,
    run: async (v) => {
      answer = await call(v);
    },
  });
  return values ? (answer ?? values) : null;
}

// cancel stops a job, or takes it out of the queue.
export async function cancel(job) {
  const done = await confirmed(
    {
      title: 'Cancel ' + named(job) + '?',
      text: 'A running worker is stopped; what it has changed so far is kept as a patch.',
      confirm: 'Cancel the job',
      tone: 'bad',
      testid: 'dialog-cancel-job',
    },
    () => api.post(path`/v1/jobs/${job.id}/cancel`),
  );
  if (done) toast('Cancelling ' + named(job) + '.');
  return done;
}

// retry does an ended job again and returns the new one's {job, attempts}.
export async function retry(job) {
  try {
    const done = await api.post(path`/v1/jobs/${job.id}/retry`);
    toast(named(job) + ' is queued again.');
    return done;
  } catch (error) {
    failed(error, 'The job could not be run again');
    return null;
  }
}

// approve says yes to the work of a job that waits for it.
export async function approve(job) {
  const done = await confirmed(
    {
      title: 'Approve ' + named(job) + '?',
      confirm: 'Approve',
      testid: 'dialog-approve',
      fields: [{name: 'comment', label: 'Comment', type: 'textarea', rows: 3}],
    },
    (v) => api.post(path`/v1/jobs/${job.id}/answer`, {approved: true, comment: v.comment.trim() || undefined}),
  );
  if (done) toast('Approved ' + named(job) + '.');
  return done;
}

// reject says no, and what is to be done better.
export async function reject(job) {
  const done = await confirmed(
    {
      title: 'Reject ' + named(job) + '?',
      confirm: 'Reject',
      tone: 'bad',
      testid: 'dialog-reject',
      text: 'The job runs again with your comment, if it has attempts left.',
      fields: [{name: 'comment', label: 'What should be improved', type: 'textarea', rows: 5, required: true}],
    },
    (v) => api.post(path`/v1/jobs/${job.id}/answer`, {approved: false, comment: v.comment.trim()}),
  );
  if (done) toast('Rejected ' + named(job) + '.');
  return done;
}

// checkpoint stops a running job at its next step, to go on from there.
export async function checkpoint(job) {
  const done = await confirmed(
    {
      title: 'Checkpoint ' + named(job) + '?',
      confirm: 'Checkpoint',
      testid: 'dialog-checkpoint',
      text: 'The worker stops at its next step. The job is queued and goes on from there.',
      fields: [{name: 'reason', label: 'Reason'}],
    },
    (v) => api.post(path`/v1/jobs/${job.id}/checkpoint`, {reason: v.reason.trim() || undefined}),
  );
  if (done) toast(named(job) + ' stops at its next step.');
  return done;
}

// pause lets nothing of a scope begin any more: global, worker:KIND, workspace:/PATH.
export async function pause(scope = 'global') {
  const done = await confirmed(
    {
      title: scope === 'global' ? 'Pause everything?' : 'Pause ' + firstLine(scope, 80) + '?',
      confirm: 'Pause',
      tone: 'bad',
      testid: 'dialog-pause',
      text: 'Running jobs finish; no other job begins.',
      fields: [
        {name: 'reason', label: 'Reason', hint: 'Shown to everybody who looks at waiting jobs.'},
        {
          name: 'for',
          label: 'For how long',
          type: 'select',
          value: '',
          options: [
            ['', 'Until it is resumed'],
            ['15m0s', '15 minutes'],
            ['1h0m0s', '1 hour'],
            ['8h0m0s', '8 hours'],
            ['24h0m0s', '1 day'],
          ],
        },
      ],
    },
    (v) => api.post('/v1/pause', {scope, reason: v.reason.trim() || undefined, for: v.for || undefined}),
  );
  if (done) toast('Paused.');
  return done;
}

// resume lifts what keeps a scope from beginning.
export async function resume(scope) {
  try {
    const done = await api.post('/v1/resume', {scope});
    toast('Resumed ' + firstLine(scope, 80) + '.');
    return done;
  } catch (error) {
    failed(error, 'The scope could not be resumed');
    return null;
  }
}

// cordon has a node be given no new jobs.
export async function cordon(node) {
  const done = await confirmed(
    {
      title: 'Cordon ' + firstLine(node.name, 64) + '?',
      confirm: 'Cordon',
      testid: 'dialog-cordon',
      text: 'The node is given no new jobs until it is uncordoned. What runs there goes on.',
      fields: [{name: 'why', label: 'Reason', hint: 'Shown to everybody who looks at the nodes.'}],
    },
    (v) => api.post(path`/v1/nodes/${node.name}/cordon`, {why: v.why.trim() || undefined}),
  );
  if (done) toast(firstLine(node.name, 64) + ' is given no new jobs.');
  return done;
}

// uncordon has a node be given jobs again.
export async function uncordon(node) {
  try {
    const done = await api.post(path`/v1/nodes/${node.name}/uncordon`);
    toast(firstLine(node.name, 64) + ' is given jobs again.');
    return done;
  } catch (error) {
    failed(error, 'The node could not be uncordoned');
    return null;
  }
}

// drain cordons a node and empties it.
export async function drain(node) {
  const done = await confirmed(
    {
      title: 'Drain ' + firstLine(node.name, 64) + '?',
      confirm: 'Drain',
      tone: 'bad',
      testid: 'dialog-drain',
      text: 'The node is given no new jobs. Jobs that are stopped go on elsewhere, and no attempt counts.',
      fields: [
        {
          name: 'mode',
          label: 'What runs there',
          type: 'select',
          value: 'wait',
          options: [
            ['wait', 'Let it end'],
            ['checkpoint', 'Stop it at its next step, where it keeps steps'],
            ['stop', 'Stop it now'],
          ],
        },
        {name: 'why', label: 'Reason', hint: 'Shown to everybody who looks at the nodes.'},
      ],
    },
    (v) => api.post(path`/v1/nodes/${node.name}/drain`, {mode: v.mode, why: v.why.trim() || undefined}),
  );
  if (done) toast(firstLine(node.name, 64) + ' is being drained.');
  return done;
}
