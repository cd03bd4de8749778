import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { constants } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const NEEDED = 24;
const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'];

/** The program of the package `node`; undefined where it is not installed, or without the file that its script brings. */
function bundledNode() {
  try {
    const folder = dirname(createRequire(import.meta.url).resolve('node/package.json'));
    const binary = join(folder, 'bin', process.platform === 'win32' ? 'node.exe' : 'node');
    return existsSync(binary) ? binary : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Runs a program of the package: in this process where its Node is new enough, else in the Node of the package `node`,
 * which npm installs with this one.
 * @param {string} program below dist/
 */
export async function launch(program) {
  const file = new URL(`../dist/${program}`, import.meta.url);
  if (Number.parseInt(process.versions.node, 10) >= NEEDED) {
    const { keepCompiledModules } = await import('./compile-cache.js');
    keepCompiledModules();
    await import(file.href);
    return;
  }
  const binary = bundledNode();
  if (binary === undefined) {
    console.error(
      `This Node is ${process.version}, and ragen needs ${NEEDED}: install Node ${NEEDED}, or npm's package \`node\` next to ragen (npm install node@${NEEDED})`,
    );
    process.exitCode = 1;
    return;
  }
  const child = spawn(binary, [fileURLToPath(file), ...process.argv.slice(2)], { stdio: 'inherit' });
  child.on('error', error => {
    console.error(
      `This Node is ${process.version}, and ragen needs ${NEEDED}; the one it brings along does not start: ${error.message}`,
    );
    process.exitCode = 1;
  });
  for (const signal of SIGNALS) {
    // A terminal sends its interrupt to both processes.
    process.on(signal, () => (signal === 'SIGINT' && process.stdin.isTTY ? undefined : child.kill(signal)));
  }
  child.on('exit', (code, signal) => {
    process.exitCode = code ?? 128 + constants.signals[signal];
  });
}
