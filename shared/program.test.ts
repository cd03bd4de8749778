import t from 'tap';
import { ENV_SERVER, programOf, TRAINER } from './program.ts';

t.test('a command begins with what its reader has', async t => {
  t.equal(TRAINER, 'npm run trainer --');
  t.equal(ENV_SERVER, 'npm run env-server --');
  t.equal(programOf('ragen', 'trainer', { installed: true, npx: false }), 'ragen');
  t.equal(programOf('ragen', 'trainer', { installed: true, npx: true }), 'npx ragen');
});
