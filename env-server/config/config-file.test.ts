import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { output, runServer, startServer } from '../../test/process.test-data.ts';
import { hashToken } from '../transports/access/auth.ts';
import { readConfigFile } from './config-file.ts';

t.setTimeout(900_000);

/** JSON is YAML, too. */
const yaml = JSON.stringify;
const authorization = 'Bearer secret';

t.test('settings come from a file, over it from variables, over both from flags', async t => {
  const file = join(t.testdir({ 'a.yaml': '' }), 'a.yaml');
  writeFileSync(
    file,
    yaml({
      tokens: [{ name: 'root', sha256: hashToken('secret'), scopes: ['admin'] }],
      'max-sessions': 30,
      'max-sessions-per-client': 29,
      'max-sessions-per-environment': 29,
    }),
  );
  const variables = { RAGEN_MAX_SESSIONS_PER_CLIENT: '20', RAGEN_MAX_SESSIONS_PER_ENVIRONMENT: '19' };
  const { ask } = await startServer(t, ['--config', file, '--max-sessions-per-environment', '10'], variables);
  t.equal((await ask('GET', '/v1/envs')).status, 401, 'tokens may be written out in the file');
  for (const [count, limit] of [
    [31, 'limit of 30 sessions on this server'],
    [21, 'limit of 20 sessions of one client'],
    [11, 'limit of 10 sessions of FrozenLake-v0'],
  ] as const) {
    const { body } = await ask('POST', '/v1/sessions', { env_id: 'FrozenLake-v0', count }, { authorization });
    t.match(body.detail, limit);
  }
});

t.test('errors in a config file name the line and the valid choices', async t => {
  const wrong = 'max-sesions: 3\nport: high\nlog-level: loud\nidle-ttl-seconds: -1\ndata: 7\n';
  const file = join(t.testdir({ 'a.yaml': wrong }), 'a.yaml');
  for (const message of [
    /a\.yaml:1: `max-sesions`: unknown key, did you mean `max-sessions`\?; known here: host, port, /,
    /a\.yaml:2: `port`: must be integer, got "high"/,
    /a\.yaml:3: `log-level`: got "loud"; valid: silent, error, warn, info, debug/,
    /a\.yaml:4: `idle-ttl-seconds`: must be >= 0, got -1/,
    /a\.yaml:5: `data`: must be string, got 7/,
  ]) {
    t.throws(() => readConfigFile(file), message);
  }
  t.throws(() => readConfigFile(`${file}.not`), /no such config file/);
  const { code, text } = await output(runServer(t, [], { RAGEN_CONFIG: file }));
  t.equal(code, 1);
  t.match(text, /^ragen-env-server: .*a\.yaml:1: `max-sesions`/);
});

t.test('settings of environments reach them; with tokens no data file is read unless one may', async t => {
  const rows = '{"query":"1+1?","response":"The answer is: 2"}\n';
  const folder = t.testdir({ data: { 'rows.jsonl': rows }, 'other.jsonl': rows, 'a.yaml': '' });
  writeFileSync(join(folder, 'a.yaml'), yaml({ 'data-dir': join(folder, 'data') }));
  const create = (data: string) => ({ env_id: 'MetaMathQA-v0', config: { data } });
  const confined = await startServer(t, ['--config', join(folder, 'a.yaml')]);
  t.match(await confined.ask('POST', '/v1/sessions', create('rows.jsonl')), { status: 201 });
  t.match(await confined.ask('POST', '/v1/sessions', create('../other.jsonl')), {
    status: 422,
    body: { detail: /must lie under the folder/ },
  });
  const tokens = yaml([{ name: 'ann', sha256: hashToken('secret'), scopes: ['play'] }]);
  const shared = await startServer(t, ['--tokens', tokens]);
  const other = create(join(folder, 'other.jsonl'));
  t.match(await shared.ask('POST', '/v1/sessions', other, { authorization }), {
    status: 422,
    body: { detail: /this server reads no data files/ },
  });
});
