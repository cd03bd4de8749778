import { randomBytes } from 'node:crypto';

/** 96 random bits, enough that ids cannot be guessed. */
const ID_BYTES = 12;
const POOL_IDS = 512;

let pool = Buffer.alloc(0);
let used = 0;

/** An unguessable id: a prefix and 16 URL-safe characters. */
export function newId(prefix: string): string {
  if (used === pool.length) {
    pool = randomBytes(ID_BYTES * POOL_IDS);
    used = 0;
  }
  used += ID_BYTES;
  return prefix + pool.toString('base64url', used - ID_BYTES, used);
}
