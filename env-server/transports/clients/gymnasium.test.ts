import t from 'tap';
import { lacksPython, PYTHON_MS, runPython } from '../../../test/python.test-data.ts';
import { hostOf } from '../../../test/wire.test-data.ts';
import { createApp } from '../../app.ts';
import { stopSandboxes } from '../../environments/deepcoder/deepcoder.ts';
import { createRegistry } from '../../environments/registry.ts';

const options = { skip: lacksPython('gymnasium', 'numpy'), timeout: PYTHON_MS };

for (const form of ['text', 'structured']) {
  t.test(`every environment passes Gymnasium's check_env in its ${form} form`, options, async t => {
    const app = await createApp({ logLevel: 'silent' });
    t.teardown(() => {
      stopSandboxes();
      return app.server.close();
    });
    await app.server.listen({ port: 0, host: '127.0.0.1' });
    const ids = createRegistry()
      .list()
      .map(({ spec }) => spec.id);
    const program = new URL('./gymnasium.test-data.py', import.meta.url);
    const faults = await runPython(program, `http://${hostOf(app)}`, form, ...ids);
    t.same(faults, Object.fromEntries(ids.map(id => [id, null])));
  });
}
