import { once } from 'node:events';
import { createServer } from 'node:net';

/**
 * Where systems have none of the ports that they give to those who ask for any (from 32768 on Linux, 49152 elsewhere): no
 * other test is given the port between its choice and its use, or while a server that has it is restarted.
 */
const FIRST = 12_000;
const COUNT = 20_000;
/** Processes begin at different places. */
const STRIDE = 97;

let next = process.pid * STRIDE;

/** A port of this machine that nothing listens on. */
export async function freePort(): Promise<number> {
  for (let tries = 0; tries < COUNT; tries++) {
    const port = FIRST + (next++ % COUNT);
    const server = createServer().listen(port, '127.0.0.1');
    const isFree = await once(server, 'listening').then(
      () => true,
      () => false,
    );
    if (!isFree) continue;
    await new Promise(resolve => server.close(resolve));
    return port;
  }
  throw new Error(`all ports from ${FIRST} to ${FIRST + COUNT - 1} are taken`);
}
