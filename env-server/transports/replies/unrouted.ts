import type { FastifyInstance } from 'fastify';
import { Problem } from '../../problems.ts';
import { type ProblemHandler, shortened } from './problem-handler.ts';

interface Route {
  readonly method: string;
  /** Segments of its path. */
  readonly pattern: readonly string[];
}

/**
 * Answers requests that have no route: `method_not_allowed` with `Allow` (RFC 9110, section 15.5.6) where the path has
 * routes for other methods, else `not_found`. To be called before any routes are added.
 */
export function answerUnrouted(app: FastifyInstance, problemHandler: ProblemHandler): void {
  const routes: Route[] = [];
  app.addHook('onRoute', ({ method, url }) => {
    // For preflights.
    if (url === '*') return;
    for (const each of [method].flat()) routes.push({ method: each, pattern: url.split('/') });
  });
  app.setNotFoundHandler((request, reply) => {
    const { method, url } = request;
    const [path] = url.split('?', 1);
    const segments = path.split('/');
    const allowed = new Set(routes.filter(route => fits(route, segments)).map(route => route.method));
    if (allowed.size === 0 || allowed.has(method)) {
      const encoded = routes.map(route => withEncodedSlash(route, method, segments)).find(Boolean);
      const hint = encoded
        ? `; where an environment id has a slash, the path has %2F: ${encoded}`
        : '; /docs shows the routes';
      const detail = `there is no ${method} ${shortened(url)}${hint}`;
      return problemHandler.reply(new Problem('not_found', detail), request, reply);
    }
    const list = [...allowed].join(', ');
    reply.header('allow', list);
    return problemHandler.reply(
      new Problem('method_not_allowed', `${path} takes ${list}, not ${method}`),
      request,
      reply,
    );
  });
}

/** The path that would fit a route if one slash of an environment id in it were encoded. */
function withEncodedSlash(route: Route, method: string, path: readonly string[]): string | undefined {
  const at = route.pattern.indexOf(':env_id');
  if (at < 0 || route.method !== method || !path[at] || !path[at + 1]) return undefined;
  const joined = path.toSpliced(at, 2, `${path[at]}%2F${path[at + 1]}`);
  return fits(route, joined) ? shortened(joined.join('/')) : undefined;
}

/** `:name` matches any one segment, `:name(…)` one of that form, `*` the rest of the path. */
function fits({ pattern }: Route, path: readonly string[]): boolean {
  if (pattern.length !== path.length && pattern.at(-1) !== '*') return false;
  return pattern.every((part, i) => {
    if (part.startsWith(':')) return path[i] !== undefined && path[i] !== '' && formOf(part).test(path[i]);
    return part === '*' || part === path[i];
  });
}

const ANY = /./;

/** Pattern of the values of a parameter of a route. */
function formOf(part: string): RegExp {
  const open = part.indexOf('(');
  return open < 0 ? ANY : new RegExp(part.slice(open + 1, -1));
}
