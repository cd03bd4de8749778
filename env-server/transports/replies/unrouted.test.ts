import t from 'tap';
import { isProblem, testApp } from '../../../test/app.test-data.ts';

t.test('a path that takes other methods says which', async t => {
  const { ask, open } = await testApp(t);
  const id = await open();
  const cases: readonly [method: string, path: string, allow: string][] = [
    ['GET', `/v1/sessions/${id}/step`, 'POST'],
    ['PATCH', '/v1/sessions', 'POST, GET, HEAD'],
    ['PUT', `/v1/sessions/${id}?x=1`, 'GET, HEAD, DELETE'],
    ['POST', '/livez', 'GET, HEAD'],
    ['OPTIONS', '/v1/batch', 'POST'],
    ['DELETE', '/assets/page/main.ts', 'GET, HEAD'],
    ['GET', '/compat/openenv/test%2FCounter-v0/step', 'POST'],
    ['GET', '/compat/openenv/test/Counter-v0/step', 'POST'],
  ];
  for (const [method, path, allow] of cases) {
    const reply = await ask(method, path);
    isProblem(t, reply, 'method_not_allowed');
    t.same(String(reply.headers.allow).split(', ').sort(), allow.split(', ').sort(), `${method} ${path}`);
    t.equal(reply.headers['x-content-type-options'], 'nosniff');
  }
});

t.test('a path that takes none does not exist', async t => {
  const { ask, open } = await testApp(t);
  const id = await open();
  for (const path of ['/v2/sessions', `/v1/sessions/${id}/step/more`, '/v1', '/v1/batch/']) {
    for (const method of ['GET', 'POST', 'PROPFIND']) {
      const reply = await ask(method, path);
      isProblem(t, reply, 'not_found');
      t.notOk('allow' in reply.headers, `${method} ${path}`);
    }
  }
});

t.test('a path that leads out of a folder of files, or names none, does not exist', async t => {
  const { ask } = await testApp(t);
  for (const path of [
    '/assets/site/../',
    '/assets/site/%2e%2e/',
    '/assets/site/..%2f',
    '/assets/%00',
    '/docs/more',
  ]) {
    isProblem(t, await ask('GET', path), 'not_found');
  }
});
