// A worker (docs/worker-protocol.md) that does what the first line of its instructions
// says, a JSON list of acts:
//
//   {"line": {…}}            prints a line of the protocol
//   {"times": n, "line": …}  prints it n times, "#" in its text being the count
//   {"write": path, "text"}  writes a file, relative to the workspace
//   {"await": path}          waits until that file is there
//   {"only": attempt, …}     an act of that attempt alone
//
// Asked for a checkpoint it stops at once.
//
// Without a result of its own it completes, and answers with the rest of its
// instructions: the feedback on the last attempt, where there is some.

import {existsSync, mkdirSync, watch, writeFileSync} from 'node:fs';
import {dirname} from 'node:path';
import {createInterface} from 'node:readline';

const say = (line) => process.stdout.write(JSON.stringify(line) + '\n');

async function there(path) {
  await new Promise((resolve) => {
    const watcher = watch(dirname(path), () => look());
    const look = () => {
      if (!existsSync(path)) return;
      watcher.close();
      resolve();
    };
    look();
  });
}

const replies = []; // what waits for the answer to a step
let began;
const task = new Promise((resolve) => (began = resolve));
createInterface({input: process.stdin}).on('line', (text) => {
  const line = JSON.parse(text);
  if (line.type === 'task') began(line);
  else if (line.type === 'checkpoint' || line.type === 'cancel') end('checkpointed');
  else replies.shift()?.();
});

// end is the last line.
function end(status, answer) {
  say({type: 'result', status, answer});
  process.stdout.end(() => process.exit(0));
}

const {instructions, attempt} = await task;
const [first, ...rest] = instructions.split('\n');
let ended = false;
for (const act of JSON.parse(first)) {
  if (act.only && act.only !== attempt) continue;
  for (let n = 0; n < (act.line ? act.times || 1 : 0); n++) {
    const line = act.times ? {...act.line, text: act.line.text.replace('#', n + 1)} : act.line;
    say(line);
    ended ||= line.type === 'result';
    if (line.type === 'step' && 'result' in line) await new Promise((resolve) => replies.push(resolve));
  }
  if (act.write) {
    mkdirSync(dirname(act.write), {recursive: true});
    writeFileSync(act.write, act.text);
  }
  if (act.await) await there(act.await);
}
if (ended) process.stdout.end(() => process.exit(0));
else end('completed', rest.join('\n').trim() || 'Done.');
