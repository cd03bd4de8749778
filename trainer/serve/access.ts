import { hash, timingSafeEqual } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { isLoopback } from '../../shared/http/addresses.ts';
import { ApiError, tooMany, unauthorized } from './openai/errors.ts';

export interface AccessSettings {
  /** Address that the server listens on. */
  readonly host: string;
  /** Bearer token that clients send; undefined: none is needed, which only a loopback address allows. */
  readonly token?: string;
  /** Bearer token that administrators send; undefined: nobody can load or unload adapters. */
  readonly adminToken?: string;
}

const WRONG = 'the token is wrong';
const digest = (text: string): Buffer => hash('sha256', text, 'buffer');

/** Checks of the bearer tokens of clients and administrators. */
export class Access {
  readonly #token: Buffer | null;
  readonly #adminToken: Buffer | null;
  readonly #hosts: boolean;

  /** @throws Error where others could reach the server and no token is set */
  constructor({ host, token, adminToken }: AccessSettings) {
    if (!isLoopback(host) && !token) {
      throw new Error(
        `${host} can be reached from other machines: set a token for clients (RAGEN_SERVE_TOKEN), or listen on 127.0.0.1`,
      );
    }
    this.#token = token ? digest(token) : null;
    this.#adminToken = adminToken ? digest(adminToken) : null;
    this.#hosts = this.#token === null;
  }

  /**
   * Admits a client with a bearer token or `X-API-Key`. Without configured tokens only this machine's names are
   * admitted in `Host`: otherwise a web page could use the server through a name that resolves to this machine.
   * @throws ApiError 401 or 403
   */
  client(headers: IncomingHttpHeaders): void {
    const { host } = headers;
    if (this.#hosts && !isLoopback((host ?? '').replace(/:\d*$/, ''))) {
      throw new ApiError(
        403,
        `the host ${JSON.stringify(host)} is not this machine; set a token to serve other names`,
      );
    }
    if (this.#token === null) return;
    const given = tokenOf(headers);
    if (timingSafeEqual(given, this.#token)) return;
    if (this.#adminToken !== null && timingSafeEqual(given, this.#adminToken)) return;
    throw unauthorized(WRONG);
  }

  /**
   * Admits an administrator.
   * @throws ApiError 401 or 403
   */
  admin({ authorization }: IncomingHttpHeaders): void {
    if (this.#adminToken === null) {
      throw new ApiError(
        403,
        'this server was started without an admin token (RAGEN_SERVE_ADMIN_TOKEN): it loads nothing',
      );
    }
    if (!timingSafeEqual(tokenOf({ authorization }), this.#adminToken)) throw unauthorized(WRONG);
  }
}

/** The token of a request, as a bearer token or in the Tinker API's header; undefined if it has none. */
export function keyOf({ authorization, 'x-api-key': key }: IncomingHttpHeaders): string | undefined {
  if (authorization === undefined) return typeof key === 'string' ? key.trim() : undefined;
  return /^bearer +(?! )(.*)$/i.exec(authorization)?.[1].trim();
}

function tokenOf(headers: IncomingHttpHeaders): Buffer {
  const token = keyOf(headers);
  if (token === undefined) throw unauthorized('the header "Authorization: Bearer <token>" is missing');
  return digest(token);
}

/** A limit of concurrent use. */
export class Budget {
  readonly max: number;
  readonly #refusal: (used: number) => string;
  readonly #whole: Budget | undefined;
  #used = 0;
  #refused = 0;

  /**
   * @param refusal message when too much is in use
   * @param whole budget that contains this one
   */
  constructor(max: number, refusal: (used: number) => string, whole?: Budget) {
    this.max = max;
    this.#refusal = refusal;
    this.#whole = whole;
  }

  get used(): number {
    return this.#used;
  }

  /** Number of rejected requests, those that a part of it rejected included. */
  get refused(): number {
    return this.#refused;
  }

  /**
   * @returns a function that gives it back.
   * @throws ApiError 429
   */
  take(amount = 1): () => void {
    if (this.#used + amount > this.max) {
      for (let of: Budget | undefined = this; of !== undefined; of = of.#whole) of.#refused++;
      throw tooMany(this.#refusal(this.#used));
    }
    const giveBack = this.#whole?.take(amount);
    this.#used += amount;
    let left = amount;
    return () => {
      this.#used -= left;
      left = 0;
      giveBack?.();
    };
  }
}

/** The most of a budget that one key takes. */
const KEY_SHARE = 3 / 4;

/** A budget that keys share: each leaves a part of it to the others. */
export class KeyShares {
  readonly #whole: Budget;
  readonly #refusal: (used: number) => string;
  readonly #shares = new Map<string, Budget>();

  /** @param refusal message when a key uses too much */
  constructor(whole: Budget, refusal: (used: number) => string) {
    this.#whole = whole;
    this.#refusal = refusal;
  }

  /** @returns a function that gives it back, once. @throws ApiError 429 */
  take(key: string, amount: number): () => void {
    const share =
      this.#shares.get(key) ?? new Budget(KEY_SHARE * this.#whole.max, this.#refusal, this.#whole);
    const giveBack = share.take(amount);
    this.#shares.set(key, share);
    return () => {
      giveBack();
      if (share.used === 0) this.#shares.delete(key);
    };
  }
}
