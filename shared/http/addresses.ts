import { isIPv4, isIPv6 } from 'node:net';

/** Leading groups of an IPv6 address that name a network: one client owns all addresses in it. */
const NETWORK_GROUPS = 4;

/** True if only this machine can reach an address. */
export function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || (isIPv4(host) && host.startsWith('127.'));
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
