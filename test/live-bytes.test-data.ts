import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;

/** Bytes of everything that is reachable. */
export async function liveBytes(): Promise<number> {
  // Twice, as what is finalized after the first is free after the second.
  for (let i = 0; i < 2; i++) {
    collectGarbage();
    await new Promise(resolve => setTimeout(resolve, 2));
  }
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}
