import fastifyWebsocket, { type WebsocketPluginOptions } from '@fastify/websocket';
import type { FastifyInstance } from 'fastify';
import { Problem } from '../../problems.ts';
import type { ProblemHandler } from '../replies/problem-handler.ts';
import type { PacedRequests } from '../rest/paced-requests.ts';
import { PacedWebSocket } from './paced-websocket.ts';
import { chooseSubprotocol } from './protocol.ts';

export interface OpenSocketsParts {
  readonly problemHandler: ProblemHandler;
  readonly paced: PacedRequests;
  readonly bodyLimitBytes: number;
  readonly maxFramesInFlight: number;
}

type WebSocketOptions = NonNullable<WebsocketPluginOptions['options']>;

/** Close code of a server that shuts down (RFC 6455, section 7.4.1). */
const GOING_AWAY = 1001;
/** Milliseconds that clients get to end their connections when the server closes. */
const CLOSE_MS = 2000;

/** The WebSockets of a server: accepts them, and ends them and other connections when the server closes. */
export class OpenSockets {
  readonly #server: FastifyInstance;
  readonly #parts: OpenSocketsParts;
  #sockets: ReadonlySet<PacedWebSocket> = new Set();
  #cut: NodeJS.Timeout | undefined;

  constructor(server: FastifyInstance, parts: OpenSocketsParts) {
    this.#server = server;
    this.#parts = parts;
  }

  get size(): number {
    return this.#sockets.size;
  }

  /** @param addRoutes adds the WebSocket routes, and others, to a scope in which sockets are accepted */
  async accept(addRoutes: (scope: FastifyInstance) => Promise<void>): Promise<void> {
    this.#server.addHook('preClose', done => {
      // Otherwise the server would wait for a client in the middle of a request, or one that does not answer the WebSocket's
      // close.
      this.#cut = setTimeout(() => this.cutConnections(), CLOSE_MS);
      done();
    });
    // In a separate scope: the plugin adds to every request in it.
    await this.#server.register(async scope => {
      await this.#addPlugin(scope);
      refuseOtherRequests(scope);
      await addRoutes(scope);
    });
  }

  async #addPlugin(scope: FastifyInstance): Promise<void> {
    const { problemHandler, paced, bodyLimitBytes, maxFramesInFlight } = this.#parts;
    const goAway = () => {
      for (const socket of this.#sockets) socket.close(GOING_AWAY, 'the server is shutting down');
    };
    await scope.register(fastifyWebsocket, {
      errorHandler(error, socket) {
        problemHandler.noteSocketError(error);
        socket.terminate();
      },
      preClose(done) {
        goAway();
        this.websocketServer.close(done);
      },
      options: {
        WebSocket: PacedWebSocket as unknown as WebSocketOptions['WebSocket'],
        // Pongs are sent in turns as well.
        autoPong: false,
        maxPayload: bodyLimitBytes,
        handleProtocols: protocols => chooseSubprotocol(protocols) ?? false,
      },
    });
    this.#sockets = scope.websocketServer.clients as Set<PacedWebSocket>;
    scope.websocketServer.on('connection', (socket: PacedWebSocket, request) => {
      socket.pace(request.socket, paced.laneOf(request), maxFramesInFlight);
    });
    scope.websocketServer.on('wsClientError', (error, socket) => problemHandler.refuse(error, socket));
  }

  /** Ends every connection at once. */
  cutConnections(): void {
    for (const socket of this.#sockets) socket.terminate();
    this.#server.server.closeAllConnections();
  }

  /** Resolves when all connections have ended. */
  closed(): void {
    clearTimeout(this.#cut);
  }
}

/** Answers plain requests for WebSocket routes. */
function refuseOtherRequests(scope: FastifyInstance): void {
  scope.addHook('preValidation', (request, _reply, done) => {
    const isSocket = request.ws || !request.routeOptions.url?.endsWith('/ws');
    done(
      isSocket
        ? undefined
        : new Problem(
            'upgrade_required',
            `${request.routeOptions.url} is a WebSocket: connect to it with ws:// or wss://`,
          ),
    );
  });
}
