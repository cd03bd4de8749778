import { randomName } from './platform.ts';

/** Makes keys that no other client makes: a random name and a counter. */
export function requestKeys(): () => string {
  const client = randomName();
  let count = 0;
  return () => `${client}-${count++}`;
}
