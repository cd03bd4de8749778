import { execFile } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { stripTypeScriptTypes } from 'node:module';
import { join, posix } from 'node:path';
import { promisify } from 'node:util';
import t, { type Test } from 'tap';
import ts from 'typescript';
import { createApp } from '../../env-server/app.ts';
import { hashToken } from '../../env-server/transports/access/auth.ts';
import { browser, skip } from '../../site/playground/browser.test-data.ts';
import { serveHttp } from '../../test/local-server.test-data.ts';
import { EnvServer, rollout } from './index.ts';

const ROOT = new URL('../../', import.meta.url);
const ENTRY = 'trainer/client/index.ts';
const NODE = 'trainer/client/platform.ts';
const BROWSER = 'trainer/client/platform-browser.ts';
const TOKEN = 'a token with ümlauts';

const textOf = (path: string): string => readFileSync(new URL(path, ROOT), 'utf8');

/** Files of the repository and packages, by name, that a program loads when it imports the entry. */
function loaded(platform: string): { files: string[]; packages: string[] } {
  const files = new Set<string>();
  const packages = new Set<string>();
  const visit = (path: string): void => {
    const file = path === NODE ? platform : path;
    if (files.has(file)) return;
    files.add(file);
    const code = stripTypeScriptTypes(textOf(file));
    for (const { fileName } of ts.preProcessFile(code, true, true).importedFiles) {
      if (fileName.startsWith('.')) visit(posix.join(posix.dirname(file), fileName));
      else packages.add(fileName);
    }
  };
  visit(ENTRY);
  return { files: [...files], packages: [...packages].sort() };
}

/** Files of shared/ that the client loads everywhere: they import nothing. */
const SHARED = ['shared/text.ts', 'shared/http/retry.ts', 'shared/json.ts'];

t.test('the client loads nothing of the trainer, and in a browser nothing but itself', async t => {
  const inBrowser = loaded(BROWSER);
  t.ok(
    inBrowser.files.every(file => file.startsWith('trainer/client/') || SHARED.includes(file)),
    inBrowser.files.join(' '),
  );
  t.same(inBrowser.packages, []);
  const inNode = loaded(NODE);
  t.same(
    inNode.files.filter(file => !file.startsWith('trainer/client/')).sort(),
    [...SHARED, 'shared/http/chunks.ts', 'shared/log.ts'].sort(),
  );
  t.same(inNode.packages, ['node:crypto', 'node:stream', 'pino', 'undici', 'ws']);
  const { browser: map } = JSON.parse(textOf('package.json')) as { browser: object };
  const inPackage = (path: string) => `./dist/${path.replace(/ts$/, 'js')}`;
  t.same(map, { [inPackage(NODE)]: inPackage(BROWSER) }, 'bundlers take the platform of browsers');
});

t.test('both platforms have the same members', async t => {
  const names = async (path: string) =>
    Object.keys((await import(new URL(path, ROOT).href)) as object).sort();
  t.same(await names(NODE), await names(BROWSER));
});

/** A server with a token, which pages of an origin may use. */
async function envServer(t: Test, corsOrigins = ''): Promise<string> {
  const tokens = JSON.stringify([{ name: 'page', sha256: hashToken(TOKEN), scopes: ['play'] }]);
  const { server } = await createApp({ logLevel: 'silent', corsOrigins, tokens });
  t.teardown(() => server.close());
  return server.listen({ host: '127.0.0.1', port: 0 });
}

t.test('for await plays all episodes to their ends, one request a turn', async t => {
  const server = new EnvServer({ url: await envServer(t), token: TOKEN });
  t.teardown(() => server.close());
  const task = { env_id: 'FrozenLake-v0', num_envs: 8, seed: 1, config: { success_rate: 1 } };
  const ended = new Set<number>();
  let last = 0;
  for await (const { step, results, open } of rollout(server, task, ({ env }) => (env % 2 ? 'Up' : 'Down'))) {
    t.equal(step, ++last);
    for (const { env, terminated, truncated } of results) {
      t.notOk(ended.has(env), 'an episode that has ended takes no steps');
      if (terminated || truncated) ended.add(env);
    }
    t.equal(open, 8 - ended.size);
  }
  t.equal(ended.size, 8);
  t.same((await server.call('list', {})).sessions, [], 'all sessions are closed');
  for await (const { results } of rollout(server, task, () => 'Up')) {
    t.equal(results.length, 8);
    break;
  }
  t.same((await server.call('list', {})).sessions, [], 'also when the loop is left');
  const wrong = rollout(server, { env_id: 'None-v0', num_envs: 2 }, () => 'Up');
  await t.rejects(wrong.next(), { code: 'unknown_environment' });
});

/** A page on a separate origin from which the client can be imported, types stripped, with the platform of browsers. */
async function emptyPage(t: Test): Promise<string> {
  const imports = { [`/${NODE}`]: `/${BROWSER}` };
  const html = `<!doctype html><script type="importmap">${JSON.stringify({ imports })}</script>`;
  const { url } = await serveHttp(t, (request, response) => {
    const path = (request.url ?? '/').slice(1);
    response.setHeader('content-type', path === '' ? 'text/html' : 'text/javascript');
    response.statusCode = path === '' || path.endsWith('.ts') ? 200 : 404;
    response.end(path === '' ? html : path.endsWith('.ts') ? stripTypeScriptTypes(textOf(path)) : '');
  });
  return url;
}

t.test('a page of another origin plays with it', { skip, timeout: 900_000 }, async t => {
  const origin = await emptyPage(t);
  const url = await envServer(t, origin);
  const tab = await (await browser()).newPage();
  t.teardown(() => tab.close());
  await tab.goto(origin);
  const played = await tab.evaluate(`(async () => {
    const { EnvServer, rollout } = await import('/${ENTRY}');
    const totals = {};
    for (const transport of ['websocket', 'http']) {
      const server = new EnvServer({ url: ${JSON.stringify(url)}, token: ${JSON.stringify(TOKEN)}, transport });
      let steps = 0;
      const task = { env_id: 'FrozenLake-v0', num_envs: 4, seed: 1 };
      for await (const { results } of rollout(server, task, () => 'Right')) steps += results.length;
      totals[transport] = { steps, left: (await server.call('list', {})).sessions.length };
      await server.close();
    }
    return totals;
  })()`);
  t.match(played, { websocket: { left: 0 }, http: { left: 0 } });
  const { websocket, http } = played as { [transport: string]: { steps: number } };
  t.equal(websocket.steps, http.steps);
  t.ok(http.steps >= 4);
});

t.test('the programs of the page about the client run', async t => {
  const page = textOf('docs/reference/client.md');
  const programs = [...page.matchAll(/^```ts\n([\s\S]*?)^```$/gm)].map(match => match[1]);
  t.equal(programs.length, 2);
  t.ok(programs[0].trim().split('\n').length <= 12, 'an import, a blank line and ten lines');
  const { server } = await createApp({ logLevel: 'silent' });
  t.teardown(() => server.close());
  const url = await server.listen({ host: '127.0.0.1', port: 0 });
  const entry = new URL(ENTRY, ROOT).href;
  const folder = t.testdir();
  for (const [i, program] of programs.entries()) {
    const file = join(folder, `program-${i}.ts`);
    writeFileSync(file, program.replace("'ragen/client'", JSON.stringify(entry)));
    const { stdout } = await promisify(execFile)(process.execPath, [file, url]);
    t.match(stdout, i === 0 ? /^mean return [\d.]+\n$/ : / -0\.1\n$/);
  }
});
