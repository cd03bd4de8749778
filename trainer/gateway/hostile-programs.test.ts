import { existsSync, readFileSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import t from 'tap';
import { isAlive } from '../../shared/run-folder/is-alive.ts';
import { episodeReturn } from '../rollout/episode.ts';
import { serve } from '../rollout/server.test-data.ts';
import { firstArm, PULL, programPlays, script } from './gateway.test-data.ts';

t.test('lies about rewards change nothing', async t => {
  const { play } = await programPlays(
    t,
    {
      command: script(`${PULL}
        const base = env.OPENAI_BASE_URL.replace('/v1', '');
        for (const token of [env.OPENAI_API_KEY, env.RAGEN_SESSION_TOKEN, 'guess']) {
          const { status } = await ask(base + '/reward', token, { reward: 1000, done: true });
          if (status !== 403) throw new Error('posted a reward: ' + status);
        }
        await step('x'); await step('y');`),
    },
    { answer: firstArm },
  );
  const { episodes } = await play(1);
  t.equal(episodes.length, 2);
  for (const episode of episodes) t.ok(episodeReturn(episode) <= 1);
});

t.test('its own rollout has keys, and sees no secrets of the trainer', async t => {
  process.env.RAGEN_TOKEN = 'trainers-own';
  process.env.MY_SECRET = 'hidden';
  t.teardown(() => {
    delete process.env.RAGEN_TOKEN;
    delete process.env.MY_SECRET;
  });
  const { play, gateway, notes } = await programPlays(
    t,
    {
      command: script(`
        if (env.RAGEN_TOKEN || env.MY_SECRET) throw new Error('sees a secret');
        const other = env.OPENAI_BASE_URL.replace(/rollouts\\/[^/]+/, 'rollouts/other');
        for (const [url, key] of [[env.OPENAI_BASE_URL, env.RAGEN_SESSION_TOKEN], [env.OPENAI_BASE_URL, ''], [other, env.OPENAI_API_KEY]]) {
          const { status, body } = await ask(url + '/chat/completions', key, { messages: [{ role: 'user', content: 'x' }] });
          if (status !== 401 || body.error.code !== 'invalid_api_key') throw new Error('let in: ' + status);
        }
        const models = await ask(env.OPENAI_BASE_URL + '/models', env.OPENAI_API_KEY, undefined, 'GET');
        if (models.body.data[0].id !== 'policy') throw new Error('no model');
        const bad = await ask(env.OPENAI_BASE_URL + '/chat/completions', env.OPENAI_API_KEY, { messages: [] });
        if (bad.status !== 400) throw new Error('took an empty conversation');
        ${PULL}`),
    },
    { answer: firstArm },
  );
  const { episodes } = await play(1);
  t.equal(episodes.length, 2, notes.join('\n'));
  const late = await fetch(`${gateway.url}/rollouts/x/v1/chat/completions`, { method: 'POST' });
  t.equal(late.status, 401);
});

t.test('a program that fails is played again, then its group is given up with its last words', async t => {
  const bad: readonly (readonly [code: string, words: RegExp, settings?: object])[] = [
    [
      `console.error('first'); console.error('the reason'); process.exit(3);`,
      /status 3[\s\S]*first\nthe reason/,
    ],
    ['process.kill(process.pid, "SIGKILL");', /ended by SIGKILL/],
    [
      `${PULL} await new Promise(() => setInterval(() => {}, 1000));`,
      /not done after 1\.5 s/,
      { timeoutMs: 1500 },
    ],
    [`for (;;) await chat([{ role: 'user', content: 'more' }]);`, /more than 16 calls/],
    [`await chat([{ role: 'user', content: 'x' }]);`, /ended without a move/],
    ['', /ended without a call/],
    [
      `${PULL} for (let i = 0; i < 256; i++) process.stderr.write('x'.repeat(65536)); process.exit(3);`,
      /status 3[\s\S]*x/,
    ],
  ];
  const servers = await serve(t);
  for (const [code, words, settings] of bad) {
    const { play, notes } = await programPlays(
      t,
      { command: script(code), ...settings },
      { answer: firstArm, servers },
    );
    await t.rejects(play(1, 1), words, code);
    t.equal(notes.length, 2);
    t.match(notes[0], /^attempt 1 of 2 at Arms with seed 100 failed/);
  }
  const { play } = await programPlays(t, { command: ['/no/such/program'] }, { answer: firstArm, servers });
  await t.rejects(play(1, 1), /could not be started/);
});

t.test('a bad member costs its own group and no other', async t => {
  const { play, notes } = await programPlays(
    t,
    {
      command: script(`if (task().observation === await worst()) process.exit(1); ${PULL}
      async function worst() { return (await ask(env.RAGEN_SESSION_URL, env.RAGEN_SESSION_TOKEN, undefined, 'GET')).body.seed === 101 ? task().observation : ''; }`),
    },
    { answer: firstArm },
  );
  const { episodes, dropped, metrics } = await play(3);
  t.same(
    episodes.map(({ groupId }) => groupId),
    [0, 0, 2, 2],
  );
  t.equal(dropped.length, 1);
  t.equal(metrics.errored_rollouts, 2);
  t.ok(notes.every(note => note.includes('seed 101')));
});

t.test('an attempt that fails leaves nothing in the one that counts', async t => {
  const mark = `${t.testdir()}/failed`;
  const { play } = await programPlays(
    t,
    {
      command: script(`
        import { existsSync, writeFileSync } from 'node:fs';
        const { observation } = task();
        const file = ${JSON.stringify(mark)};
        const reply = await chat([{ role: 'user', content: observation }]);
        await step(reply.choices[0].message.content);
        if (!existsSync(file)) { writeFileSync(file, ''); process.exit(1); }`),
      processes: 1,
    },
    { answer: firstArm },
  );
  const { episodes } = await play(1, 1);
  t.match(episodes, [{ turns: [{ actions: { length: 1 } }], program: { calls: 1, failedAttempts: 1 } }]);
});

t.test('a program cannot reset the episode away', async t => {
  const { play } = await programPlays(
    t,
    {
      command: script(`
        ${PULL}
        const again = await ask(env.RAGEN_SESSION_URL + '/reset', env.RAGEN_SESSION_TOKEN, {});
        if (again.status !== 409) throw new Error('reset: ' + again.status);
        const reset = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'reset', arguments: { seed: 4 } } };
        const { body } = await ask(env.RAGEN_MCP_URL, env.RAGEN_SESSION_TOKEN, reset);
        if (body.result.structuredContent.seed !== 4) throw new Error(JSON.stringify(body));`),
    },
    { answer: firstArm },
  );
  await t.rejects(play(1, 1), /it reset the session: a rollout is one episode/);
});

t.test(
  'daemons that leave the process group of their program end with it',
  { skip: existsSync('/proc/self/environ') ? false : 'no /proc' },
  async t => {
    const pids = `${t.testdir()}/pids`;
    const daemon = `echo $$ >> ${pids}; sleep 600`;
    const daemons = (count: number) => `
      import { spawn, spawnSync } from 'node:child_process';
      import { readFileSync, writeFileSync } from 'node:fs';
      const [pids, daemon] = ${JSON.stringify([pids, daemon])};
      writeFileSync(pids, '', { flag: 'a' });
      spawn('sh', ['-c', daemon], { detached: true, stdio: 'ignore' }).unref();
      spawnSync('sh', ['-c', '(setsid sh -c "$1" &) &', 'sh', daemon], { stdio: ['ignore', 'ignore', 'inherit'] });
      while (readFileSync(pids, 'utf8').split('\\n').length <= ${count}) await new Promise(go => setTimeout(go, 10));`;
    /** Kills take a moment. */
    const ended = async () => {
      const started = readFileSync(pids, 'utf8').trim().split('\n');
      while (started.some(pid => isAlive(Number(pid)))) await pause(10);
      return started.length;
    };
    const plays = (code: string, more: object = {}) =>
      programPlays(t, { command: script(code), processes: 1, ...more }, { answer: firstArm });
    const { play, notes } = await plays(`${daemons(2)} ${PULL}`);
    t.equal((await play(1, 1)).episodes.length, 1, notes.join('\n'));
    t.equal(await ended(), 2);
    const late = await plays(`${daemons(4)} setInterval(() => {}, 1000);`, { timeoutMs: 5_000 });
    await t.rejects(late.play(1, 1), /not done after 5 s/);
    t.ok((await ended()) >= 2, 'also those of a program that is stopped');
  },
);

t.test('JSON that is nested without end, or has an infinite number, is refused', async t => {
  const { play, notes } = await programPlays(
    t,
    {
      command: script(`
        const refused = [
          ['['.repeat(100000) + ']'.repeat(100000), 'nested more than 100'],
          ['[{"a":-1e400}]', 'beyond ±1.8e308'],
          ['1e400', 'beyond ±1.8e308'],
        ].map(([action, message]) => ['{"id":1,"op":"step","action":' + action + '}', message]);
        const headers = { 'content-type': 'application/json', authorization: 'Bearer ' + env.RAGEN_SESSION_TOKEN };
        for (const url of [env.RAGEN_SESSION_URL + '/step', env.RAGEN_MCP_URL]) for (const [body, message] of refused) {
          const reply = await fetch(url, { method: 'POST', headers, body });
          const text = await reply.text();
          if (reply.status !== 400 || !text.includes(message)) throw new Error(url + ' ' + reply.status + text);
        }
        const { default: WebSocket } = await import(${JSON.stringify(import.meta.resolve('ws'))});
        const socket = new WebSocket(env.RAGEN_SESSION_URL.replace('http', 'ws') + '/ws', { headers });
        await new Promise(open => socket.on('open', open));
        for (const [text, message] of refused) {
          socket.send(text);
          const frame = JSON.parse(await new Promise(got => socket.once('message', got)));
          if (frame.error.status !== 400 || !frame.error.detail.includes(message)) throw new Error(JSON.stringify(frame));
        }
        socket.terminate();
        ${PULL}`),
    },
    { answer: firstArm },
  );
  const { episodes } = await play(1);
  t.equal(episodes.length, 2, notes.join('\n'));
});
