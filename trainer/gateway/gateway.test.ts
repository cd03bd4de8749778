import { readdirSync, readFileSync } from 'node:fs';
import t from 'tap';
import { episodeReturn, samplesOf } from '../rollout/episode.ts';
import { serve } from '../rollout/server.test-data.ts';
import { chatTokenizer, firstArm, LAKE, PULL, programPlays, script } from './gateway.test-data.ts';

t.test('a program plays, and every token is trained on as it was sampled', async t => {
  const tokenizer = chatTokenizer();
  const { play, policy, notes } = await programPlays(
    t,
    { command: script(PULL) },
    { answer: firstArm },
    tokenizer,
  );
  const { episodes, dropped, metrics } = await play(2);
  t.equal(episodes.length, 4);
  t.same([dropped, notes], [[], []]);
  t.equal(metrics.errored_rollouts, 0);
  for (const episode of episodes) {
    const [sample] = samplesOf(episode);
    const text = tokenizer.decode(sample.tokenIds);
    const arm = firstArm(text);
    t.match(text, /^<\|im_start\|>user\n\S+ or \S+<eos>\n<\|im_start\|>assistant\n\S+<eos>$/);
    const trained = sample.tokenIds.filter((_, i) => sample.lossMask[i] === 1);
    t.equal(tokenizer.decode(trained), `${arm}<eos>`);
    t.ok(sample.logProbs.every((lp, i) => lp === (sample.lossMask[i] ? -0.5 : 0)));
    t.ok(sample.versions.every((version, i) => version === (sample.lossMask[i] ? 3 : 0)));
    t.match(episode, {
      terminated: true,
      turns: [{ actions: [arm], response: arm, rawResponse: arm, reward: Number }],
      program: { calls: 1, merges: 0, retokenizedTokens: 0, failedAttempts: 0 },
    });
    t.equal(episode.success, episodeReturn(episode) === 1);
  }
  t.equal(policy.requests.length, 4);
  t.same(policy.requests[0].sampling, {
    temperature: 1,
    topK: 0,
    topP: 1,
    maxNewTokens: 64,
    stopTokenIds: policy.requests[0].sampling.stopTokenIds,
    stopStrings: [],
  });
  t.equal(new Set(policy.requests.map(({ seed }) => seed)).size, 4);
});

t.test(
  'a conversation of several turns is one sample, its rewards at the turns that earned them',
  async t => {
    const { play } = await programPlays(
      t,
      {
        command: script(`
        const messages = [];
        let observation = task().observation;
        for (let i = 0; i < 3; i++) {
          messages.push({ role: 'user', content: observation });
          const { choices: [{ message }] } = await chat(messages);
          messages.push({ role: 'assistant', content: message.content });
          const result = await step(message.content);
          if (result.terminated || result.truncated) break;
          observation = result.observation;
        }`),
      },
      { tag: LAKE, answer: () => 'Up' },
    );
    const { episodes } = await play(1);
    for (const episode of episodes) {
      t.equal(samplesOf(episode).length, 1);
      t.equal(episode.program?.merges, episode.turns.length - 1);
      t.ok(episode.turns.every(({ actions }) => actions.length === 1));
    }
  },
);

t.test('two roles give two samples, which share the return', async t => {
  const { play } = await programPlays(
    t,
    {
      command: script(`
        const { observation } = task();
        const plan = await chat([{ role: 'system', content: 'plan' }, { role: 'user', content: observation }]);
        const act = await chat([{ role: 'system', content: 'act' }, { role: 'user', content: observation }]);
        await step(act.choices[0].message.content);`),
    },
    { answer: firstArm },
  );
  const { episodes } = await play(1, 1);
  for (const episode of episodes) {
    t.equal(samplesOf(episode).length, 2);
    t.equal(episode.turns.length, 2);
    t.same(
      episode.turns.map(({ sample }) => sample),
      [0, 1],
    );
    t.equal(episode.turns[0].reward, 0);
    t.equal(episode.turns[1].actions.length, 1);
  }
});

t.test("MCP offers the environment's tools, for this session alone", async t => {
  const { play, notes } = await programPlays(
    t,
    {
      command: script(`
        const tool = async (name, args = {}) => (await ask(env.RAGEN_MCP_URL, env.RAGEN_SESSION_TOKEN, { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name, arguments: args } })).body.result;
        const seen = (await tool('reset')).content[0].text;
        if (seen !== task().observation) throw new Error('another episode');
        const reply = await chat([{ role: 'user', content: seen }]);
        const done = await tool('step', { action: reply.choices[0].message.content });
        if (!done.structuredContent.terminated) throw new Error("not over");
        const other = await tool('observe', { session_id: 'other' });
        if (!other.isError) throw new Error('another session');`),
    },
    { answer: firstArm },
  );
  const { episodes } = await play(1);
  t.equal(episodes.length, 2, notes.join('\n'));
  t.match(episodes[0].turns, [{ actions: { length: 1 } }]);
});

t.test('programs that stay ask for one episode after the other', async t => {
  const code = `
    for (;;) {
      const next = await ask(env.RAGEN_GATEWAY_URL + '/rollouts/next', env.RAGEN_WORKER_TOKEN);
      if (next.status === 204) continue;
      const task = JSON.parse(next.body.RAGEN_TASK);
      const reply = await chat([{ role: 'user', content: task.observation }], {}, next.body);
      await step(reply.choices[0].message.content, next.body);
      const error = task.observation.length % 2 && process.env.FAIL ? 'odd' : undefined;
      await ask(env.RAGEN_GATEWAY_URL + '/rollouts/' + next.body.id + '/finish', env.RAGEN_WORKER_TOKEN, { error });
    }`;
  const servers = await serve(t);
  const { play } = await programPlays(
    t,
    { command: script(code), workers: 2 },
    { answer: firstArm, servers },
  );
  const { episodes } = await play(3);
  t.equal(episodes.length, 6);
  t.ok(episodes.every(({ terminated }) => terminated));
  const crash = await programPlays(
    t,
    {
      command: script(
        `const next = await ask(env.RAGEN_GATEWAY_URL + '/rollouts/next', env.RAGEN_WORKER_TOKEN); console.error('lost it'); process.exit(1);`,
      ),
      workers: 1,
    },
    { answer: firstArm, servers },
  );
  await t.rejects(crash.play(1, 1), /lost it/);
  const never = await programPlays(
    t,
    { command: script('process.exit(2)'), workers: 1 },
    { answer: firstArm, servers },
  );
  await t.rejects(never.play(1, 1), /status 2/);
  const hang = await programPlays(
    t,
    {
      command: script(
        `await ask(env.RAGEN_GATEWAY_URL + '/rollouts/next', env.RAGEN_WORKER_TOKEN); setInterval(() => {}, 1000);`,
      ),
      workers: 1,
      timeoutMs: 1000,
    },
    { answer: firstArm, servers },
  );
  // On a slow machine it may not even ask in time.
  await t.rejects(hang.play(1, 1), /(not done after|asked for nothing for) 1 s/);
  const mute = await programPlays(
    t,
    {
      command: script(`console.error('stuck'); setInterval(() => {}, 1000);`),
      workers: 2,
      timeoutMs: 500,
    },
    { answer: firstArm, servers },
  );
  await t.rejects(mute.play(1, 1), /attempt 2 of 2 .*asked for nothing for 0\.5 s/);
  t.equal(mute.notes.length, 2);
});

t.test("with a verifier the reward is the verifier's", async t => {
  const { play } = await programPlays(
    t,
    {
      command: script(`
        await chat([{ role: 'user', content: task().observation }]);
        const base = env.OPENAI_BASE_URL.replace('/v1', '');
        for (const [key, reward, status] of [['wrong', 1, 401], ['verifier-key', 'much', 400], ['verifier-key', 0.25, 200]]) {
          const reply = await ask(base + '/reward', key, { reward });
          if (reply.status !== status) throw new Error(status + ' ' + reply.status);
        }`),
      verifierKey: 'verifier-key',
    },
    { answer: firstArm },
  );
  const { episodes } = await play(1, 1);
  for (const episode of episodes) t.equal(episodeReturn(episode), 0.25);
});

t.test(
  'a program ends with all its children',
  { skip: process.platform !== 'linux' && 'reads /proc' },
  async t => {
    const { play } = await programPlays(
      t,
      {
        command: script(`
        import { spawn } from 'node:child_process';
        spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000) // gateway-orphan'], { stdio: 'inherit' }).unref();
        spawn('sleep', ['30'], { stdio: 'inherit', detached: true }).unref();
        ${PULL} process.exit(0);`),
      },
      { answer: firstArm },
    );
    await play(1, 1);
    const left = readdirSync('/proc').filter(pid => {
      try {
        return /^\\d+$/.test(pid) && readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('gateway-orphan');
      } catch {
        return false;
      }
    });
    t.same(left, []);
  },
);

t.test('a session is played over a WebSocket, and over no other path', async t => {
  const { play, notes } = await programPlays(
    t,
    {
      command: script(`
        const { request } = await import('node:http');
        const headers = key => ({ connection: 'Upgrade', upgrade: 'websocket', 'sec-websocket-version': 13, 'sec-websocket-key': 'AAAAAAAAAAAAAAAAAAAAAA==', authorization: 'Bearer ' + key });
        const refused = (url, key) => new Promise((resolve, reject) => {
          request(url, { headers: headers(key) }, reply => resolve(reply.resume().statusCode)).on('upgrade', () => resolve(101)).on('error', reject).end();
        });
        const ws = env.RAGEN_SESSION_URL + '/ws';
        const statuses = await refused(env.RAGEN_SESSION_URL, env.RAGEN_SESSION_TOKEN) + ' ' + await refused(ws, env.OPENAI_API_KEY);
        if (statuses !== '400 401') throw new Error('status ' + statuses);
        const { WebSocket } = await import(${JSON.stringify(import.meta.resolve('ws'))});
        const socket = new WebSocket(ws.replace('http', 'ws'), { headers: { authorization: 'Bearer ' + env.RAGEN_SESSION_TOKEN } });
        const replies = [];
        let wake;
        socket.on('message', data => (replies.push(JSON.parse(data)), wake?.()));
        await new Promise((resolve, reject) => socket.on('open', resolve).on('error', reject));
        const next = async () => { while (!replies.length) await new Promise(resolve => { wake = resolve; }); return replies.shift(); };
        const frame = body => (socket.send(body === '{' ? body : JSON.stringify(body)), next());
        for (const bad of ['{', { op: 'get' }, { id: 1, op: 'close' }, { id: 1, op: 'get', session_id: 'x' }]) {
          const { error } = await frame(bad);
          if (error.status !== 400 || !error.detail) throw new Error(JSON.stringify(error));
        }
        const { result } = await frame({ id: 'a', op: 'get' });
        const reply = await chat([{ role: 'user', content: result.observation }]);
        const action = reply.choices[0].message.content;
        socket.send(JSON.stringify({ id: 1, op: 'step', action }));
        socket.send(JSON.stringify({ id: 2, op: 'reset' }));
        const [done, reset] = [await next(), await next()];
        if (done.id !== 1 || !done.result.terminated || reset.id !== 2 || reset.error.code !== 'episode_begun') throw new Error(JSON.stringify([done, reset]));
        const all = [socket];
        const codes = await Promise.all(Array.from({ length: 8 }, () => new Promise((resolve, reject) => {
          const more = new WebSocket(ws.replace('http', 'ws'), { headers: { authorization: 'Bearer ' + env.RAGEN_SESSION_TOKEN } });
          all.push(more);
          more.on('error', reject).on('close', resolve).on('open', () => more.ping()).on('pong', () => resolve(0));
        })));
        if (codes.filter(code => code === 1013).length !== 1) throw new Error('one socket too many: ' + codes);
        for (const each of all) each.close();`),
    },
    { answer: firstArm },
  );
  t.match((await play(1, 1)).episodes, [{ turns: [{ actions: { length: 1 } }] }], notes.join('\n'));
});
