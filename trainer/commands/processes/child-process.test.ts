import t from 'tap';
import { startTrainer } from './child-program.ts';
import { startEnvServer } from './env-server-process.ts';

t.test('a server comes up, says where, and ends when asked', async t => {
  const { child, url } = await startEnvServer(['--port', '0']);
  t.teardown(() => child.kill());
  const reply = await fetch(`${url}/livez`);
  t.equal(reply.status, 200);
  await reply.text();
  child.stop();
  t.equal(await child.ended, 0);
});

t.test('a server that cannot start is an error', async t => {
  await t.rejects(startEnvServer(['--port', 'none', '--log-level', 'silent']), /ended with status 1/);
});

t.test('a trainer that is refused ends with its status', async t => {
  t.equal(await startTrainer(['--resume', t.testdir()], 'npm start').ended, 1);
});
