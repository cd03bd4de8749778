import t from 'tap';
import { secretOf } from './derived.ts';

t.test('a secret is read from the variable that a setting names', async t => {
  t.teardown(() => delete process.env.RAGEN_TEST_SECRET);
  t.equal(secretOf('endpoint.api_key_env', null), undefined);
  process.env.RAGEN_TEST_SECRET = 'x';
  t.equal(secretOf('endpoint.api_key_env', 'RAGEN_TEST_SECRET'), 'x');
  process.env.RAGEN_TEST_SECRET = '';
  t.throws(() => secretOf('endpoint.api_key_env', 'RAGEN_TEST_SECRET'), {
    message: 'endpoint.api_key_env: the environment variable RAGEN_TEST_SECRET is not set',
  });
});
