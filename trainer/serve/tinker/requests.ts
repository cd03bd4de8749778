import { createHash } from 'node:crypto';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import Type, { type Static, type TSchema } from 'typebox';
import { keyOf } from '../access.ts';
import { bodyParser } from '../openai/parse.ts';

export const MAX_TEXT = 1024;
export const GREATEST_INTEGER = 2 ** 31 - 1;

/** A field that SDKs leave out or send as null. */
export const orNull = <T extends TSchema>(schema: T) => Type.Optional(Type.Union([schema, Type.Null()]));
export const Id = Type.String({ minLength: 1, maxLength: MAX_TEXT });
export const SequenceId = Type.Integer({ minimum: 0, maximum: GREATEST_INTEGER });
export const MaybeId = orNull(Id);
export const MaybeSequenceId = orNull(SequenceId);
export const MaybeFlag = orNull(Type.Boolean());

/** `lora_config` of a request. */
export const LoraSettings = Type.Object({
  rank: Type.Integer({ minimum: 1 }),
  seed: orNull(Type.Integer()),
  train_unembed: MaybeFlag,
  train_mlp: MaybeFlag,
  train_attn: MaybeFlag,
});

/** Adds a route with a JSON body. Unknown fields of the body are ignored. */
export function postRoute<Body extends TSchema>(
  app: FastifyInstance,
  path: string,
  schema: Body,
  reply: (body: Static<Body>, owner: string, request: FastifyRequest) => object | Promise<object>,
): void {
  const parse = bodyParser(schema, () => {});
  app.post(path, async request => reply(parse(request.body), ownerOf(request), request));
}

/** Hash of a request's key, which distinguishes owners. */
export function ownerOf({ headers }: Pick<FastifyRequest, 'headers'>): string {
  return createHash('sha256')
    .update(keyOf(headers) ?? '')
    .digest('hex')
    .slice(0, 32);
}

export const hashOf = (content: object): string =>
  createHash('sha256').update(JSON.stringify(content)).digest('base64');
