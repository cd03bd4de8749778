import type { FastifyReply } from 'fastify';
import type { Json } from '../../../shared/json.ts';

export const JSON_TYPE = 'application/json; charset=utf-8';

/** Sends a text that is JSON already. */
export function sendJsonText(reply: FastifyReply, text: string): FastifyReply {
  return reply.header('content-type', JSON_TYPE).send(text);
}

/** Sends a value as JSON. */
export function sendJson(reply: FastifyReply, value: Json): FastifyReply {
  return sendJsonText(reply, JSON.stringify(value));
}

/**
 * A number as JSON that typed clients read as a floating-point one: `1.0`, not `1`.
 *
 * @example
 * floatText(1) // '1.0'
 */
export function floatText(value: number): string {
  return Number.isInteger(value) ? value.toFixed(1) : String(value);
}
