import type { Json, JsonObject } from '../../../shared/json.ts';
import type { MaybePromise } from '../../environments/core/maybe-promise.ts';

/** A tool as MCP lists it. */
export type ToolDocument = {
  readonly name: string;
  readonly description: string;
  /** JSON Schema of the arguments: an object. */
  readonly inputSchema: JsonObject;
};

/** Content of a result: text, or a picture in base64. */
export type ToolContent =
  | { readonly type: 'text'; readonly text: string }
  | { readonly type: 'image'; readonly data: string; readonly mimeType: string };

/** Result of a call of a tool. Other protocols add keys. */
export type ToolResult = {
  readonly content: readonly ToolContent[];
  readonly structuredContent: JsonObject;
  /** The model should read `content` and try something else. */
  readonly isError: boolean;
  readonly [key: string]: Json;
};

/** Tools and resources that a client of MCP is offered in one request. */
export interface McpEndpoint {
  readonly serverInfo: { readonly name: string; readonly title: string; readonly version: string };
  /** Description of the task and of how to begin. */
  readonly instructions: string;
  tools(): MaybePromise<readonly ToolDocument[]>;
  /** @throws RpcError for a call that is wrong as a message; any other error is written by `McpHost.errorOf` */
  call(name: string, given: JsonObject): MaybePromise<ToolResult>;
}
