import type { IncomingHttpHeaders } from 'node:http';
import Fastify, { type FastifyInstance } from 'fastify';
import { securePages } from '../../../shared/http/page-security.ts';
import { lazy } from '../../../shared/lazy.ts';
import { JSON_TYPE, revalidateReplies } from '../replies/send.ts';

/** Address of each page from the site's root, as in `site/components/header.ts`. */
const PAGES = [
  ['Play', '#/play'],
  ['Watch', '#/watch'],
  ['Environments', '#/environments'],
  ['Register', '#/register'],
  ['Docs', 'docs/'],
] as const;

/** Puts the site's header above the reference, which links to the other pages. */
const SCRIPT = `
const root = location.pathname.replace(/docs(\\/.*)?$/, '');
const header = document.createElement('header');
header.className = 'site-header';
const nav = document.createElement('nav');
nav.setAttribute('aria-label', 'Site');
const link = (text, address) => {
  const a = document.createElement('a');
  a.href = root + address;
  a.textContent = text;
  return a;
};
const brand = link('ragen', '');
brand.className = 'site-brand';
for (const [name, address] of ${JSON.stringify(PAGES)}) {
  const a = link(name, address);
  if (name === 'Docs') a.setAttribute('aria-current', 'page');
  nav.append(a);
}
header.append(brand, nav);
document.body.prepend(header);
const description = document.createElement('meta');
description.name = 'description';
description.content = 'The HTTP interface of this ragen server, with forms to try each request.';
document.head.append(description);

// Adds what Swagger UI's markup lacks for screen readers and the tab key.
const reference = document.getElementById('swagger-ui');
reference.setAttribute('role', 'main');
const set = (element, name, value) => element.getAttribute(name) !== value && element.setAttribute(name, value);
const mend = () => {
  for (const title of reference.querySelectorAll('h3.opblock-tag')) set(title, 'aria-level', '2');
  for (const title of reference.querySelectorAll('h4, h5')) set(title, 'aria-level', '3');
  const servers = reference.querySelector('#servers');
  if (servers) set(servers, 'aria-label', 'Server');
  // A link within a button cannot be focused; the button opens the operation.
  for (const link of reference.querySelectorAll('.opblock-summary-control a, .topbar a')) {
    link.removeAttribute('href');
    set(link, 'role', 'none');
  }
};
let asked = 0;
new MutationObserver(() => {
  asked ||= requestAnimationFrame(() => {
    asked = 0;
    mend();
  });
}).observe(reference, { childList: true, subtree: true });
mend();
`;

/** Colors on which white letters are readable. */
const METHOD_COLORS = {
  get: '#1f5fa8',
  post: '#17705f',
  put: '#8a5200',
  delete: '#b3261e',
  patch: '#2f6b5f',
};

const STYLE = `
@font-face { font-family: "Inter"; src: url("../../../assets/site/styles/fonts/inter-5.3.woff2") format("woff2");
  font-weight: 100 900; font-display: optional; }
@font-face { font-family: "JetBrains Mono"; src: url("../../../assets/site/styles/fonts/jetbrains-mono-5.3.woff2") format("woff2");
  font-weight: 100 800; font-display: optional; }
.swagger-ui, .swagger-ui * { font-family: "Inter", system-ui, sans-serif !important; }
.swagger-ui :is(code, pre, textarea, .microlight, .opblock-summary-path, .prop-format), .swagger-ui :is(code, pre, .microlight,
  .opblock-summary-path) * { font-family: "JetBrains Mono", ui-monospace, monospace !important; }
.swagger-ui .topbar { display: none; }
${Object.entries(METHOD_COLORS)
  .map(
    ([method, color]) =>
      `.swagger-ui .opblock.opblock-${method} .opblock-summary-method { background: ${color}; }`,
  )
  .join('\n')}
html:not(.dark-mode) .swagger-ui .info .url { color: #1f5fa8; }
html:not(.dark-mode) .swagger-ui .btn.authorize { color: #17705f; border-color: #17705f; }
html:not(.dark-mode) .swagger-ui .json-schema-2020-12-expand-deep-button { color: #5e5a51; }
.swagger-ui .info .title small { background: #5c6370; }
.swagger-ui .info .title small.version-stamp { background: #3d6b00; }
.swagger-ui .info .renderedMarkdown code { padding: 0 4px; line-height: 1.3; }
.site-header { display: flex; flex-wrap: wrap; align-items: center; gap: 0.25rem 1.5rem; padding: 0.5rem 1.5rem;
  border-bottom: 1px solid #e0dbd0; background: #fff; font: 15px/1.55 "Inter", system-ui, sans-serif; }
.site-header a { padding: 0.375rem 0.75rem; border-radius: 0.5rem; color: #5e5a51; font-weight: 560; text-decoration: none; }
.site-header nav { display: flex; flex-wrap: wrap; gap: 0.25rem; }
.site-header a:hover { background: #f2efe8; }
.site-header a[aria-current] { background: #e4f0ec; color: #17705f; }
.site-header .site-brand { color: #23211d; font-size: 1.125rem; font-weight: 680; }
html.dark-mode body { background: #1c2022; } html.dark-mode .site-header { border-color: #3a3d44; background: #1d1f24; }
html.dark-mode .site-header a { color: #b9b6ae; }
html.dark-mode .site-header a:hover { background: #2a2d33; }
html.dark-mode .site-header a[aria-current] { background: #1f3a33; color: #7fd1b9; }
html.dark-mode .site-header .site-brand { color: #f1efe9; }
`;

/** The reference as a part of the site. */
const DOCS_THEME = {
  title: 'Reference · ragen',
  js: [{ filename: 'site-header.js', content: SCRIPT }],
  css: [{ filename: 'site-header.css', content: STYLE }],
};

const PREFIX = '/docs';
const CLIENT_ERROR = 400;
const NO_SUCH_RANGE = 416;
const SERVER_ERROR = 500;
/** Reply headers that belong to the connection or follow from the content. */
const OF_CONNECTION = new Set(['connection', 'content-length', 'date', 'keep-alive', 'transfer-encoding']);

type OpenApi = ReturnType<typeof import('../rest/openapi.ts').openApiDocument>;

/** The OpenAPI document and its pages, both made on first request. */
export async function addReference(app: FastifyInstance): Promise<void> {
  const document = lazy(async () => (await import('../rest/openapi.ts')).openApiDocument());
  const pages = lazy(async () => swaggerPages(await document()));
  let text: string | undefined;
  await app.register(async scope => {
    await revalidateReplies(scope);
    scope.get('/openapi.json', async (_request, reply) => {
      text ??= JSON.stringify(await document());
      return reply.type(JSON_TYPE).send(text);
    });
  });
  await app.register(async scope => {
    await revalidateReplies(scope);
    await securePages(scope, { inlineStyles: true });
    for (const url of [PREFIX, `${PREFIX}/`, `${PREFIX}/*`]) {
      scope.get(url, async (request, reply) => {
        if (leadsElsewhere(request.url)) return reply.callNotFound();
        const { statusCode, headers, rawPayload } = await (await pages()).inject({
          url: request.url,
          headers: conditionsOf(request.headers),
        });
        if (statusCode >= SERVER_ERROR) throw new Error(`${request.url}: ${rawPayload.toString()}`);
        if (statusCode >= CLIENT_ERROR && statusCode !== NO_SUCH_RANGE) return reply.callNotFound();
        for (const [name, value] of Object.entries(headers)) {
          if (value !== undefined && !OF_CONNECTION.has(name)) reply.header(name, value);
        }
        return reply.code(statusCode).send(rawPayload);
      });
    }
  });
}

/** True for a path with `..` segments, which would leave the pages' folder. */
function leadsElsewhere(url: string): boolean {
  const [path] = url.split('?', 1);
  return new URL(path, 'http://localhost').pathname !== path;
}

/** A server for the pages that does not listen: routes cannot be added to a listening one. */
async function swaggerPages(document: OpenApi): Promise<FastifyInstance> {
  const [{ default: swagger }, { default: swaggerUi }] = await Promise.all([
    import('@fastify/swagger'),
    import('@fastify/swagger-ui'),
  ]);
  const pages = Fastify();
  await pages.register(swagger, { mode: 'static', specification: { document: document as never } });
  await pages.register(swaggerUi, { routePrefix: PREFIX, theme: DOCS_THEME });
  return pages;
}

/** The headers by which a client names its cached copy. */
function conditionsOf(headers: IncomingHttpHeaders): { [name: string]: string } {
  const names = ['if-none-match', 'if-modified-since', 'range', 'if-range'];
  return Object.fromEntries(
    names.flatMap(name => (typeof headers[name] === 'string' ? [[name, headers[name]]] : [])),
  );
}
