import type { IncomingHttpHeaders } from 'node:http';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { CallToolResult, JSONRPCMessage, Server, Tool } from '@modelcontextprotocol/server';
import type { JsonObject } from '../../../shared/json.ts';
import { lazy } from '../../../shared/lazy.ts';
import { isObject } from '../../custom/answer.ts';
import { isUnanswered, type RpcError } from './json-rpc.ts';
import type { McpEndpoint } from './results.ts';

/**
 * Loads the SDK when the first client of MCP comes, in parts of less than 50 ms of processor time between which the server
 * answers others: the library of its schemas before it, and what it does first after it.
 */
const loadSdk = lazy(async () => {
  await import('zod/v4/core');
  await nextTurn();
  await import('zod/v4');
  await nextTurn();
  const sdk = await import('@modelcontextprotocol/server');
  await nextTurn();
  return sdk;
});

/** One POST of the streamable HTTP transport. */
export interface McpPost {
  readonly headers: IncomingHttpHeaders;
  /** The parsed body; undefined where there is none. */
  readonly body: unknown;
}

/** Answer to a request. */
export interface McpAnswer {
  readonly status: number;
  readonly contentType: string | undefined;
  readonly text: string;
}

/**
 * Answers one POST with the official SDK: revisions that begin with `initialize` (2024-10-07 to 2025-11-25) and 2026-07-28,
 * in which each request is independent. The answer is one JSON document, never a stream of events.
 * @param errorOf writes what the endpoint threw as an error of JSON-RPC
 */
export async function exchange(
  endpoint: McpEndpoint,
  { headers, body: given }: McpPost,
  errorOf: (error: unknown) => RpcError,
): Promise<McpAnswer> {
  const sdk = await loadSdk();
  const body = withoutCancels(given);
  const request = new Request('http://localhost/mcp', { method: 'POST', headers: ownHeaders(headers) });
  const server = serverOf(sdk, endpoint, errorOf);
  try {
    const legacy = await sdk.isLegacyRequest(request, body);
    const response = await (legacy
      ? answerSessionful(sdk, server, request, body)
      : sdk
          .createMcpHandler(() => server, {
            legacy: 'reject',
            maxSubscriptions: 0,
            keepAliveMs: 0,
          })
          .fetch(request, { parsedBody: body }));
    return {
      status: response.status,
      contentType: response.headers.get('content-type') ?? undefined,
      text: await response.text(),
    };
  } finally {
    await server.close();
  }
}

/**
 * A batch without its cancellations: each POST has a separate server, so they can only mean calls of this batch, which
 * the SDK would then never answer, nor the batch. Where there is nothing else, nothing waits for an answer.
 */
function withoutCancels(body: unknown): unknown {
  if (!Array.isArray(body)) return body;
  const others = body.filter(message => !isCancel(message));
  return others.length > 0 ? others : body;
}

function isCancel(message: unknown): boolean {
  return isObject(message) && message.method === 'notifications/cancelled' && isUnanswered(message);
}

type Sdk = typeof import('@modelcontextprotocol/server');

async function answerSessionful(
  sdk: Sdk,
  server: Server,
  request: Request,
  body: unknown,
): Promise<Response> {
  // The session is the environment server's: every process can answer for it, and the SDK keeps nothing.
  const transport = new sdk.WebStandardStreamableHTTPServerTransport({
    sessionIdGenerator: undefined,
    enableJsonResponse: true,
    keepAliveMs: 0,
  });
  await server.connect(transport);
  return transport.handleRequest(request, { parsedBody: body as JSONRPCMessage });
}

/** A server for one request: tools come from outside, so nothing is registered or compiled. */
function serverOf(sdk: Sdk, endpoint: McpEndpoint, errorOf: (error: unknown) => RpcError): Server {
  const { serverInfo, instructions } = endpoint;
  const server = new sdk.Server(serverInfo, {
    capabilities: { tools: { listChanged: false } },
    instructions,
  });
  const rethrow = (error: unknown): never => {
    const { code, message, data } = errorOf(error);
    throw new sdk.ProtocolError(code, message, data);
  };
  server.setRequestHandler('tools/list', async () => {
    try {
      return { tools: (await endpoint.tools()) as unknown as Tool[] };
    } catch (error) {
      return rethrow(error);
    }
  });
  server.setRequestHandler('tools/call', async ({ params }) => {
    try {
      const { name, arguments: given = {} } = params;
      return (await endpoint.call(name, given as JsonObject)) as unknown as CallToolResult;
    } catch (error) {
      return rethrow(error);
    }
  });
  return server;
}

/** Every answer is JSON, so clients need not list what they accept. */
const ACCEPT = 'application/json, text/event-stream';

/** The headers that the protocol knows. */
function ownHeaders(headers: IncomingHttpHeaders): [string, string][] {
  const own = Object.entries(headers).filter(
    (entry): entry is [string, string] =>
      typeof entry[1] === 'string' && (entry[0] === 'content-type' || entry[0].startsWith('mcp-')),
  );
  return [...own, ['accept', ACCEPT]];
}
