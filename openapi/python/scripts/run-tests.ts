import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { createApp } from '../../../env-server/app.ts';
import { stopSandboxes } from '../../../env-server/environments/deepcoder/deepcoder.ts';
import { output } from '../../../test/process.test-data.ts';
import { hostOf } from '../../../test/wire.test-data.ts';
import { PROJECT } from './venv.ts';

const SERVER = fileURLToPath(new URL('../../../env-server/main.ts', import.meta.url));

/**
 * Runs the tests of ragen-env against a server in this process.
 * @param python an interpreter with pytest and the package's dependencies
 * @param args for pytest
 */
export async function runPackageTests(
  python: string,
  args: readonly string[] = [],
): Promise<{ code: number; text: string }> {
  const app = await createApp({ logLevel: 'silent' });
  try {
    await app.server.listen({ port: 0, host: '127.0.0.1' });
    const child = spawn(python, ['-m', 'pytest', '-q', ...args], {
      cwd: PROJECT,
      env: {
        ...process.env,
        PYTHONPATH: `${PROJECT}/src`,
        PYTHONDONTWRITEBYTECODE: '1',
        RAGEN_TEST_URL: `http://${hostOf(app)}`,
        RAGEN_TEST_SERVER: JSON.stringify([process.execPath, SERVER]),
      },
    });
    return await output(child);
  } finally {
    stopSandboxes();
    await app.server.close();
  }
}
