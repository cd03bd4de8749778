import { BlockList, isIP, isIPv6 } from 'node:net';

/** Leading groups of an IPv6 address that name a network: one client owns all addresses in it. */
const NETWORK_GROUPS = 4;

const LOOPBACK = new BlockList();
LOOPBACK.addSubnet('127.0.0.0', 8, 'ipv4');
LOOPBACK.addAddress('::1', 'ipv6');

/** True if only this machine can reach an address or name; IPv6 addresses may have the brackets of a URL. */
export function isLoopback(host: string): boolean {
  if (host.toLowerCase() === 'localhost') return true;
  const address = host.replace(/^\[|\]$/g, '');
  const family = isIP(address);
  return family !== 0 && LOOPBACK.check(address, family === 4 ? 'ipv4' : 'ipv6');
}

/** The part of an address that identifies a client: a whole IPv4 address, or the network of an IPv6 address. */
export function networkOf(address = ''): string {
  if (!isIPv6(address) || address.includes('.')) return address.replace(/^::ffff:/i, '');
  const [head, tail] = address.split('::');
  const groups = head === '' ? [] : head.split(':');
  const missing = 8 - groups.length - (tail ? tail.split(':').length : 0);
  const all =
    tail === undefined ? groups : [...groups, ...new Array<string>(missing).fill('0'), ...tail.split(':')];
  return all.slice(0, NETWORK_GROUPS).join(':');
}

/**
 * Listens on a port. Where the default port is taken, any free one replaces it.
 * @param chosen the user asked for this port
 * @throws Error when the chosen port is taken
 */
export async function listenOnPort<T>(
  port: number,
  chosen: boolean,
  listen: (port: number) => Promise<T>,
): Promise<T> {
  try {
    return await listen(port);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EADDRINUSE') throw error;
    if (chosen) {
      throw new Error(`port ${port} is taken: --port names another, --port 0 takes a free one`, {
        cause: error,
      });
    }
    console.log(`port ${port} is taken; using a free one`);
    return listen(0);
  }
}

/** The items of a list separated by commas. */
export const itemsOf = (list: string): string[] =>
  list
    .split(',')
    .map(item => item.trim())
    .filter(item => item !== '');
