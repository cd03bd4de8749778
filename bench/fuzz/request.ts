import type { Bytes } from './values.ts';

/** A request over HTTP as any client would send it. */
export interface RestRequest {
  readonly transport: 'rest';
  /** The operation it was made from; what answers may be another one, or none. */
  readonly operation: string;
  readonly method: string;
  /** With its query; marks stand for ids. */
  readonly path: string;
  readonly headers: { readonly [name: string]: string };
  readonly body: Bytes | undefined;
  /** Nothing of method, path, query and headers was spoilt. */
  readonly addressed: boolean;
}

/** What no client would send, made of a request once its marks are filled: lengths are those of what is sent. */
export interface RawRequest {
  readonly transport: 'raw';
  readonly request: RestRequest;
  readonly abuse: Abuse;
  /** A number that the abuse may use. */
  readonly at: number;
}

export type Abuse = (request: RestRequest, at: number) => Abused;

/** Bytes on a connection of their own. */
export interface Abused {
  readonly what: string;
  readonly bytes: Bytes;
  /** The client hangs up when it has sent them. */
  readonly cut: boolean;
}

/** The id in frames that are sent as texts; a value may happen to have it as well. */
export const SPOILT_ID = -1;

/** Frames sent at once on a socket of their own: values, or texts as they are. */
export interface SocketRequest {
  readonly transport: 'socket';
  readonly protocol: 'ragen.json' | 'ragen.msgpack';
  readonly frames: readonly (
    | { readonly value: { readonly [key: string]: unknown } }
    | { readonly bytes: Bytes; readonly binary: boolean }
  )[];
}

export type Request = RestRequest | RawRequest | SocketRequest;
