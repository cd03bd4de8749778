import { randomUUID } from 'node:crypto';

/** Makes keys that no other client makes: a random name and a counter. */
export function requestKeys(): () => string {
  const client = randomUUID();
  let count = 0;
  return () => `${client}-${count++}`;
}
