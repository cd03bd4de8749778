import t from 'tap';
import { createApp } from '../app.ts';

t.test('a program may add routes with schemas', async t => {
  const { server } = await createApp();
  t.teardown(() => server.close());
  const schema = {
    querystring: { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] },
    response: { 200: { type: 'object', properties: { n: { type: 'string' } } } },
  };
  server.get<{ Querystring: { n: number } }>('/twice', { schema }, async ({ query }) => ({
    n: 2 * query.n,
    other: 1,
  }));
  t.same((await server.inject('/twice?n=4')).json(), { n: '8' });
  const refused = await server.inject('/twice?n=x');
  t.equal(refused.statusCode, 400);
  t.match(refused.json().detail, /n must be integer/);
});
