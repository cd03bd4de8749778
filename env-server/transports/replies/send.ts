import type { FastifyReply } from 'fastify';

export const JSON_TYPE = 'application/json; charset=utf-8';

/** Sends a text that is JSON already. */
export function sendJsonText(reply: FastifyReply, text: string): FastifyReply {
  return reply.header('content-type', JSON_TYPE).send(text);
}
